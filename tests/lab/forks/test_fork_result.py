"""What pairs of forks show: an effect seldom where there is none, and how much longer it takes."""

import numpy as np
import pytest

from truing.lab.forks.arms import Arm
from truing.lab.forks.result import (
    ERROR,
    EVERY_ARM,
    MOST_PAIRS,
    ArmResult,
    deviation_of,
    error_of,
    results_of,
    rounds_of,
    summary,
    tried,
)
from truing.lab.stats.e_process import min_pairs

SLOW, FAST = (
    Arm("slower", ("grpo.learning_rate=1",), "seen"),
    Arm("faster", ("grpo.learning_rate=9",), "seen"),
)
PAIRS = 12


def result(*differences, arms=2):
    return ArmResult(FAST, differences, error_of(arms))


def test_a_difference_is_of_the_fork_of_the_same_pair():
    rewards = {("", 0): 0.3, ("faster", 0): 0.5, ("", 1): 0.4, ("faster", 1): 0.3, ("slower", 0): 0.3}
    slow, fast = results_of([SLOW, FAST], rewards)
    assert slow.differences == (0.0,)
    assert fast.differences == pytest.approx((0.2, -0.1))
    assert fast.error == ERROR / 2


def test_a_pair_proves_nothing_and_many_of_one_sign_do():
    assert result(0.9).verdict == "open"
    assert result(*[0.2] * min_pairs(error_of(2))).verdict == "helps"
    assert result(*[-0.2] * min_pairs(error_of(2))).verdict == "hurts"
    low, high = result(*np.linspace(0.15, 0.25, PAIRS)).interval
    assert 0.1 < low < 0.2 < high < 0.3


def test_the_e_value_is_won_by_either_sign_and_decides():
    assert result().e_value == 1
    fewest = min_pairs(error_of(2))
    for sign in (1, -1):
        assert result(*[0.2 * sign] * fewest).e_value >= 1 / error_of(2)
        assert result(*[0.2 * sign] * (fewest - 1)).e_value < 1 / error_of(2)


def test_where_nothing_helps_something_is_seldom_said_to():
    rng, count = np.random.default_rng(0), 300
    wrong = sum(
        any(
            ArmResult(arm, tuple(rng.normal(0, 0.1, PAIRS)), error_of(2)).verdict == "helps"
            for arm in (SLOW, FAST)
        )
        for _ in range(count)
    )
    assert wrong / count <= ERROR


def test_an_effect_that_is_seen_and_not_proven_says_what_would_prove_it():
    promising = result(*[0.05, -0.02, 0.08, 0.04, -0.01, 0.06, 0.05, 0.04, 0.05, -0.01])
    _, line, *_ = summary([promising], 20, lambda pairs: 2.0 * pairs)
    pairs = int(line.partition("some ")[2].split()[0])
    assert len(promising.differences) < pairs <= MOST_PAIRS
    assert line.endswith(f"--minutes {2 * pairs}")
    assert deviation_of([promising]) == pytest.approx(np.std(promising.differences, ddof=1))
    assert np.isnan(deviation_of([result(0.1)]))


def test_later_pairs_have_the_arms_that_may_still_help():
    arms = [Arm(str(i), (f"grpo.learning_rate={i}",), "seen") for i in range(4)]
    effects = (0.01, 0.3, -0.2, 0.2)

    def names(pair, effects=effects):
        noise = [0.5 * (-1) ** i for i in range(pair)]
        results = [
            ArmResult(arm, tuple(effect + each for each in noise), error_of(4))
            for arm, effect in zip(arms, effects, strict=True)
        ]
        return [each.name for each in tried(results, pair)]

    assert names(0) == ["0", "1", "2", "3"]
    assert sorted(names(EVERY_ARM - 1)) == ["0", "1", "2", "3"]
    assert names(EVERY_ARM) == ["1", "3"]
    assert names(2 * EVERY_ARM) == ["1"]
    assert names(min_pairs(error_of(4)) + 1, (0.01, 0.9, -0.2, 0.2)) == ["3"]  # "1" is proven to help
    assert rounds_of(10, 4, 1) == 4 * 5 + 4 * 3 + 2 * 2
    assert rounds_of(10, 4, 2) == 4 * 3 + 4 * 2 + 2 * 1


def test_the_first_line_is_the_answer():
    good, bad, few = result(*[0.2] * PAIRS), result(*[-0.2] * PAIRS), result(0.1, 0.2)
    flat = result(*[0.01 * (-1) ** i for i in range(PAIRS)])
    assert next(summary([bad, good], 20, None)).startswith("with grpo.learning_rate=9 the reward is higher")
    first, *_ = summary([flat, bad], 20, None)
    assert first.startswith("nothing is proven to help within 20 steps: these pairs show an effect of 0.0")
    needed = min_pairs(error_of(2))
    assert next(summary([few, few], 20, lambda pairs: 1.5 * pairs)) == (
        f"not decided: {needed} pairs are the fewest that can, so it takes"
        f" --minutes {int(np.ceil(1.5 * needed))} or more"
    )
    assert [line.partition(":")[0] for line in summary([flat, bad, good], 20, None)][1:] == [
        "helps",
        "hurts",
        "no effect is proven",
    ]
