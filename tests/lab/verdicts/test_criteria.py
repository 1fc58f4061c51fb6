"""Criteria: who must prove what, at which share of the error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.lab.stats import e_process
from truing.lab.stats.e_process import min_pairs
from truing.lab.stats.pairs import Pair
from truing.lab.store.hypothesis_file import Criterion
from truing.lab.store.ledger import Run
from truing.lab.verdicts.criteria import is_contradicted, is_futile, is_met, judge_criterion

ABOVE = Criterion(metric="eval/reward", arm="a", above=0.5)
BELOW = Criterion(metric="eval/reward", arm="a", below=0.5)
ANY_ABOVE = Criterion(metric="eval/reward", above=0.5)
ANY_BELOW = Criterion(metric="eval/reward", below=0.5)
ERROR = 0.05
ENOUGH = min_pairs(ERROR)
SIGNS = {}  # no bound on the size of differences
ENOUGH_FOR_TWO = min_pairs(ERROR / 2)

values = st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), max_size=9)


def pairs(**arms):
    table = {}
    for arm, differences in arms.items():
        table[arm] = [
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
                    metrics={"eval/reward": 1.0, "eval/f1": 0.0},
                ),
                Run(
                    "a",
                    "A",
                    "v",
                    "m",
                    "h01",
                    arm,
                    seed,
                    "finished",
                    metrics={"eval/reward": 1.0 + d, "eval/f1": -d},
                ),
            )
            for seed, d in enumerate(differences)
        ]
    return table


def test_the_fewest_pairs_differ_by_the_share():
    assert ENOUGH < ENOUGH_FOR_TWO


def test_a_criterion_of_an_arm():
    assert is_met(ABOVE, pairs(a=[1.0] * ENOUGH), SIGNS, ERROR, confirms=True)
    assert not is_met(ABOVE, pairs(a=[1.0] * (ENOUGH - 1)), SIGNS, ERROR, confirms=True)
    assert not is_met(ABOVE, pairs(a=[0.5] * 12), SIGNS, ERROR, confirms=True)
    assert not is_met(ABOVE, pairs(a=[0.0] * 12), SIGNS, ERROR, confirms=True)
    assert is_met(BELOW, pairs(a=[0.0] * ENOUGH), SIGNS, ERROR, confirms=False)
    assert not is_met(BELOW, pairs(a=[1.0] * 12), SIGNS, ERROR, confirms=False)


def test_what_other_arms_do_is_nothing_to_it():
    assert is_met(ABOVE, pairs(a=[1.0] * ENOUGH, b=[-9.0] * 12), SIGNS, ERROR, confirms=True)
    assert not is_met(ABOVE, pairs(a=[-9.0] * 12, b=[1.0] * 12), SIGNS, ERROR, confirms=True)


def test_it_is_of_its_own_metric():
    other = Criterion(metric="eval/f1", arm="a", below=-0.5)
    assert is_met(other, pairs(a=[1.0] * ENOUGH), SIGNS, ERROR, confirms=True) == e_process.is_below(
        [-1.0] * ENOUGH, -0.5, ERROR
    )
    assert is_met(other, pairs(a=[1.0] * ENOUGH), SIGNS, ERROR, confirms=True)
    assert not is_met(other, pairs(a=[-1.0] * 12), SIGNS, ERROR, confirms=True)


def test_the_opposite():
    assert is_contradicted(ABOVE, pairs(a=[0.0] * ENOUGH), SIGNS, ERROR, confirms=True)
    assert not is_contradicted(ABOVE, pairs(a=[1.0] * 12), SIGNS, ERROR, confirms=True)
    assert is_contradicted(BELOW, pairs(a=[1.0] * ENOUGH), SIGNS, ERROR, confirms=False)


@given(values, st.booleans())
def test_a_state_is_what_the_bets_say(differences, confirms):
    given = pairs(a=differences)
    data = [pair.difference("eval/reward") for pair in given["a"]]
    above, below = e_process.is_above(data, 0.5, ERROR), e_process.is_below(data, 0.5, ERROR)
    mean = sum(data) / len(data) if data else 0.5
    expected = "met" if above and mean > 0.5 else "contradicted" if below and mean < 0.5 else "open"
    assert judge_criterion(ABOVE, given, SIGNS, ERROR, confirms=confirms).state == expected


def test_any_arm_confirms_at_its_share():
    assert is_met(
        ANY_ABOVE, pairs(a=[1.0] * ENOUGH_FOR_TWO, b=[0.0] * ENOUGH_FOR_TWO), SIGNS, ERROR, confirms=True
    )
    assert not is_met(ANY_ABOVE, pairs(a=[1.0] * ENOUGH, b=[0.0] * ENOUGH), SIGNS, ERROR, confirms=True)


def test_all_arms_refute_each_at_the_whole():
    assert is_met(ANY_BELOW, pairs(a=[0.0] * ENOUGH, b=[0.0] * ENOUGH), SIGNS, ERROR, confirms=False)
    assert not is_met(ANY_BELOW, pairs(a=[0.0] * 12, b=[0.0] * (ENOUGH - 1)), SIGNS, ERROR, confirms=False)
    assert not is_met(ANY_BELOW, pairs(a=[0.0] * 12, b=[1.0] * 12), SIGNS, ERROR, confirms=False)


def test_a_claim_of_any_arm_is_contradicted_by_all_and_a_refutation_by_one():
    mixed = pairs(a=[0.0] * ENOUGH_FOR_TWO, b=[1.0] * ENOUGH_FOR_TWO)
    assert not is_contradicted(ANY_ABOVE, mixed, SIGNS, ERROR, confirms=True)
    assert is_contradicted(ANY_ABOVE, pairs(a=[0.0] * ENOUGH, b=[0.0] * ENOUGH), SIGNS, ERROR, confirms=True)
    assert is_contradicted(ANY_BELOW, mixed, SIGNS, ERROR, confirms=False)
    few = pairs(a=[0.0] * ENOUGH, b=[1.0] * ENOUGH)
    assert not is_contradicted(ANY_BELOW, few, SIGNS, ERROR, confirms=False)


def test_a_state_in_words():
    criterion = judge_criterion(ABOVE, pairs(a=[1.0] * ENOUGH), SIGNS, ERROR, confirms=True)
    assert (criterion.text, criterion.state, criterion.confirms) == (
        "eval/reward, a − baseline > 0.5",
        "met",
        True,
    )
    assert judge_criterion(ABOVE, pairs(a=[0.0] * 12), SIGNS, ERROR, confirms=True).state == "contradicted"
    assert judge_criterion(ABOVE, pairs(a=[]), SIGNS, ERROR, confirms=False).state == "open"
    assert not judge_criterion(ABOVE, pairs(a=[]), SIGNS, ERROR, confirms=False).confirms


def test_hopeless_where_no_arm_can():
    assert is_futile(ABOVE, pairs(a=[]), SIGNS, ENOUGH - 1, ERROR)
    assert not is_futile(ABOVE, pairs(a=[]), SIGNS, 12, ERROR)
    turned = [1.5, -0.5] * 4
    assert is_futile(ABOVE, pairs(a=turned), SIGNS, 9, ERROR)
    assert not is_futile(ANY_ABOVE, pairs(a=turned, b=[1.5] * 6), SIGNS, 9, ERROR)
    assert is_futile(ANY_ABOVE, pairs(a=turned, b=turned), SIGNS, 9, ERROR)


@given(values, values)
def test_it_is_hopeless_by_the_bets_of_each_arm(first, second):
    given = pairs(a=first, b=second)
    each = [
        e_process.is_futile([pair.difference("eval/reward") for pair in given[arm]], 0.5, 10, ERROR)
        for arm in "ab"
    ]
    assert is_futile(ANY_ABOVE, given, SIGNS, 10, ERROR) == all(each)


@pytest.mark.parametrize("arms", [1, 2, 4])
def test_the_chance_that_any_arm_that_does_nothing_confirms(arms):
    """Arms that share a baseline: together they keep to the error, which without shares they do not."""
    r = np.random.default_rng(arms)
    base = r.standard_normal((20_000, 1, 12))
    data = r.standard_normal((20_000, arms, 12)) - base
    allowed = ERROR + 3 * (ERROR * (1 - ERROR) / 20_000) ** 0.5
    shared = (e_process.max_wealth(data) * ERROR / arms >= 1).any(axis=1).mean()
    whole = (e_process.max_wealth(data) * ERROR >= 1).any(axis=1).mean()
    assert 0 < shared <= allowed
    assert whole > allowed or arms == 1
