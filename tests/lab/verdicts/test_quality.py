"""Quality by stated rules: one missing condition is medium, two are low."""

import math
import tomllib
from dataclasses import replace

import pytest
from labs import HEADER

from truing.lab.stats.pairs import Pair
from truing.lab.store.hypothesis_file import Header
from truing.lab.store.ledger import Run
from truing.lab.verdicts.quality import HIGH_QUALITY_PAIRS, quality_of

TASKS = 12


def header(**facts):
    return Header.model_validate(tomllib.loads(HEADER) | facts)


def pairs(count, gains=(1.0,) * TASKS):
    """Pairs whose tasks gained so much."""
    zero, won = ({f"t{i}": value for i, value in enumerate(each)} for each in ([0.0] * TASKS, gains))
    return [
        Pair(
            seed,
            Run(
                "b",
                "B",
                "v",
                "m",
                "h01",
                "baseline",
                seed,
                "finished",
                metrics={"eval/reward": 0.0, "reward/mean": 0.0},
                tasks=zero,
                bounds=(0.0, 1.0),
            ),
            Run(
                "a",
                "A",
                "v",
                "m",
                "h01",
                "changed",
                seed,
                "finished",
                metrics=dict.fromkeys(("eval/reward", "reward/mean"), sum(gains) / TASKS),
                tasks=won,
                bounds=(0.0, 1.0),
            ),
        )
        for seed in range(count)
    ]


LARGE, SMALL = (0.6, 1.2), (0.1, 0.4)
TURNED = (6.0, -4.0) * (TASKS // 2)


def quality(verdict="VALIDATED", found=None, bounds=LARGE, failed=0, **facts):
    return quality_of(
        header(**facts), verdict, pairs(HIGH_QUALITY_PAIRS) if found is None else found, bounds, failed
    )


def test_a_mean_outside_its_bounds_is_reported():
    """Of bounds of a shift, which a rare loss does not move."""
    result = pairs(HIGH_QUALITY_PAIRS, (0.1,) * TASKS)
    result[0] = replace(result[0], arm=replace(result[0].arm, metrics={"eval/reward": -4.0}))
    reason = quality("INVALIDATED", result, (0.1, 0.1))[1]
    assert reason == "the mean is outside its bounds: a few pairs weigh more than all others"


def test_high():
    assert quality() == ("high", "8 pairs, none failed, the same for other tasks")


def test_what_goes_on_or_is_not_decided():
    assert quality("TESTING") == ("–", "it is running")
    assert quality("INCONCLUSIVE") == ("low", "nothing is decided")
    assert quality("TESTING", []) == ("–", "it is running")


def test_fewer_pairs():
    assert quality(found=pairs(HIGH_QUALITY_PAIRS - 1)) == ("medium", "7 pairs, fewer than 8")


@pytest.mark.parametrize(("failed", "reason"), [(1, "1 run failed"), (3, "3 runs failed")])
def test_runs_that_failed(failed, reason):
    assert quality(failed=failed) == ("medium", reason)


@pytest.mark.parametrize("verdict", ["VALIDATED", "PARTIALLY VALIDATED"])
def test_an_effect_that_may_be_too_small(verdict):
    assert quality(verdict, bounds=(0.49, 1.0)) == (
        "medium",
        "the effect may be smaller than the smallest of interest",
    )
    assert quality(verdict, bounds=(0.5, 1.0))[0] == "high"
    assert quality(verdict, bounds=(-math.inf, math.inf))[0] == "medium"


def test_an_effect_that_is_large_the_other_way():
    assert quality(bounds=(-2.0, -0.5), found=pairs(HIGH_QUALITY_PAIRS, (-1.0,) * TASKS))[0] == "high"


def test_what_is_refuted_need_not_be_large():
    assert quality("INVALIDATED", pairs(HIGH_QUALITY_PAIRS, (0.2,) * TASKS), SMALL)[0] == "high"


def test_the_result_may_differ_on_other_tasks():
    """Half of the tasks gain and half lose: the mean is above 0 for these, and unknown for others."""
    result = quality(found=pairs(HIGH_QUALITY_PAIRS, TURNED))
    assert result == ("medium", "the result may differ on other tasks of the kind")


def test_a_refutation_holds_on_other_tasks_where_none_gains_what_matters():
    assert quality("INVALIDATED", pairs(HIGH_QUALITY_PAIRS, (0.2,) * TASKS), SMALL)[0] == "high"
    reason = quality("INVALIDATED", pairs(HIGH_QUALITY_PAIRS, TURNED), (0.1, 1.2))
    assert reason == ("medium", "the result may differ on other tasks of the kind")


def test_tasks_say_nothing_of_what_is_not_evaluated():
    assert quality(found=pairs(HIGH_QUALITY_PAIRS, TURNED), metric="reward/mean")[0] == "high"


def test_two_that_lack_are_low():
    found, reason = quality(found=pairs(5), failed=1)
    assert found == "low"
    assert reason == "5 pairs, fewer than 8; 1 run failed"
    assert quality(found=pairs(1, TURNED), failed=1, bounds=SMALL)[1].count("; ") == 4


def test_the_same_pairs_give_the_same_quality():
    gains = tuple(math.sin(i) + 0.5 for i in range(TASKS))
    assert quality(found=pairs(HIGH_QUALITY_PAIRS, gains)) == quality(found=pairs(HIGH_QUALITY_PAIRS, gains))


def test_a_pair_of_opposite_sign_is_reported():
    """Many small gains and a rare collapse: signs are in favor, and the quality must be lower."""
    result = pairs(HIGH_QUALITY_PAIRS)
    bad = replace(result[3].arm, metrics={"eval/reward": -4.0})
    result[3] = replace(result[3], arm=bad)
    assert quality(found=result) == ("medium", "one pair has the opposite sign, -4.000")
    mild = replace(bad, metrics={"eval/reward": -0.1})
    result[3] = replace(result[3], arm=mild)
    assert quality(found=result)[0] == "high"
