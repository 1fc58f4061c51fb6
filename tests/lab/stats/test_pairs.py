"""Pairs: of one seed and one version of the code, in the order of seeds, up to the first that lacks."""

import math
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.lab.stats.pairs import Pair, failed_runs, finished_pairs, pairs_of, task_differences
from truing.lab.store.ledger import History, Run

SEEDS = range(100)
ARMS = {"baseline": "B", "changed": "A"}


def run(
    arm,
    seed,
    value=0.0,
    *,
    code="v1",
    machine="m",
    outcome="finished",
    label="",
    hypothesis="h01",
    tasks=None,
):
    return Run(
        f"{arm}-{code}-{machine}-s{seed}",
        arm,
        code,
        machine,
        hypothesis,
        label or {"B": "baseline", "A": "changed"}.get(arm, arm),
        seed,
        outcome,
        "" if outcome == "finished" else f"it {outcome}",
        {"eval/reward": value},
        {"t1": value, "t2": value} if tasks is None else tasks,
    )


def history(*runs):
    return History(tuple(runs))


def both(*seeds, value=1.0, **facts):
    return [run(arm, seed, value if arm == "A" else 0.0, **facts) for seed in seeds for arm in "BA"]


def seeds_of(*runs):
    return [pair.seed for pair in pairs_of(history(*runs), "B", "A", SEEDS)]


def test_a_difference_is_the_arm_less_the_baseline():
    (pair,) = pairs_of(history(run("B", 0, 0.25), run("A", 0, 1.0)), "B", "A", SEEDS)
    assert pair.difference("eval/reward") == 0.75


def test_no_runs_are_no_pairs():
    assert seeds_of() == []
    assert seeds_of(run("B", 0), run("B", 1)) == []


def test_pairs_end_before_the_first_gap():
    assert seeds_of(*both(0, 1, 3, 4)) == [0, 1]
    assert seeds_of(*both(1, 2, 3)) == []
    assert seeds_of(*both(0, 1), run("B", 2), *both(3)) == [0, 1]
    assert sorted(finished_pairs(history(*both(0, 1, 3)), "B", "A")) == [0, 1, 3]


@given(st.permutations(both(0, 1, 2)))
def test_pairs_are_in_the_order_of_seeds_however_they_ended(runs):
    assert seeds_of(*runs) == [0, 1, 2]


@given(st.sets(st.integers(0, 9)))
def test_pairs_are_the_longest_beginning_without_a_gap(seeds):
    expected = next(n for n in range(11) if n not in seeds)
    assert seeds_of(*both(*sorted(seeds))) == list(range(expected))


def test_two_versions_of_the_code_are_no_pair():
    assert seeds_of(run("B", 0, code="v1"), run("A", 0, code="v2")) == []


def test_each_pair_is_of_one_version_where_there_are_two():
    runs = [
        run("B", 0, 0.0, code="v1"),
        run("A", 0, 5.0, code="v2"),
        run("B", 0, 4.0, code="v2"),
        *both(1, code="v1"),
    ]
    for order in permutations(runs):
        pairs = pairs_of(history(*order), "B", "A", SEEDS)
        assert [pair.seed for pair in pairs] == [0, 1]
        assert all(pair.base.code == pair.arm.code for pair in pairs)
        assert pairs[0].difference("eval/reward") == 1.0


def test_a_pair_that_is_whole_is_not_replaced_by_a_later_version():
    first, later = both(0, value=1.0, code="v1"), both(0, value=9.0, code="v2")
    assert pairs_of(history(*first, *later), "B", "A", SEEDS)[0].difference("eval/reward") == 1


@pytest.mark.parametrize("outcome", ["crashed", "proven"])
@pytest.mark.parametrize("side", ["A", "B"])
def test_what_failed_is_no_pair_and_stops_what_comes_after(outcome, side):
    runs = [*both(0), *both(1), *both(2)]
    runs[2 + (side == "A")] = run(side, 1, outcome=outcome)
    assert seeds_of(*runs) == [0]


def test_a_pair_counts_once_its_failed_run_was_repeated():
    failed = run("A", 0, outcome="crashed")
    assert seeds_of(failed, *both(0)) == [0]
    assert seeds_of(*both(0, code="v2"), failed) == [0]
    assert seeds_of(run("B", 0), failed, *both(0, code="v2")) == [0]


# What failed.


def labels(*runs, arms=ARMS):
    return [(each.label, each.seed) for each in failed_runs(history(*runs), arms)]


def test_what_failed_is_listed_by_seed():
    runs = [run("A", 2, outcome="crashed"), run("B", 1, outcome="proven"), run("A", 0), run("B", 0)]
    assert labels(*runs) == [("baseline", 1), ("changed", 2)]
    assert [each.error for each in failed_runs(history(*runs), ARMS)] == ["it proven", "it crashed"]


def test_failed_and_repeated_runs_are_in_order():
    assert labels(run("A", 0, outcome="crashed"), *both(0)) == []
    assert labels(run("A", 0, outcome="crashed"), *both(0, code="v2")) == []


def test_runs_of_other_arms_are_not_listed():
    assert labels(run("X", 0, outcome="crashed")) == []


def test_a_baseline_that_failed_is_listed_while_any_partner_lacks():
    arms = {**ARMS, "second": "C"}
    runs = [run("B", 0, outcome="crashed", code="v1"), run("B", 0, code="v2"), run("A", 0, code="v2")]
    crashed_again = run("B", 0, outcome="crashed", code="v3")
    assert labels(*runs, crashed_again, arms=arms) == [("baseline", 0)]
    assert labels(*runs, crashed_again, run("C", 0, code="v2"), arms=arms) == []


def test_a_run_of_another_hypothesis_has_the_label_that_it_has_here():
    """Its arm `warm` is what is called `changed` here; and its `changed` is not ours."""
    crashed = run("A", 0, outcome="crashed", label="warm", hypothesis="h02")
    assert labels(run("B", 0), crashed) == [("changed", 0)]
    as_base = run("B", 0, outcome="crashed", label="changed", hypothesis="h02")
    assert labels(as_base) == [("baseline", 0)]


def test_what_finished_with_mended_code_waits_for_its_partner_alone():
    """Otherwise the arm is excluded for good: its old crash counts until the baseline runs again."""
    crashed = run("A", 0, outcome="crashed", code="v1")
    mended = run("A", 0, code="v2")
    assert labels(run("B", 0, code="v1"), crashed) == [("changed", 0)]
    assert labels(run("B", 0, code="v1"), crashed, mended) == []
    assert labels(run("B", 0, code="v1"), crashed, mended, replace(crashed, code="v3", key="k3")) == [
        ("changed", 0)
    ]


def test_the_last_attempt_is_listed():
    """Tried with one version, with another, and with the first again."""
    first, second = run("A", 0, outcome="crashed", code="v1"), run("A", 0, outcome="crashed", code="v2")
    again = replace(first, error="again")
    assert [each.error for each in failed_runs(history(first, second, again), ARMS)] == ["again"]
    done = replace(first, outcome="finished")
    assert labels(first, second, done) == []


# What cannot be compared.


def pair(base, arm):
    return Pair(3, base, arm)


def test_a_pair_that_fits():
    assert pair(run("B", 3), run("A", 3)).why_not_comparable(["eval/reward"]) == ""


def test_other_tasks_are_no_comparison():
    reason = pair(
        run("B", 3, tasks={"a": 1, "b": 1}), run("A", 3, tasks={"a": 1, "c": 1, "d": 0})
    ).why_not_comparable([])
    assert "seed 3" in reason
    assert "changed was evaluated on other tasks" in reason
    assert "(3 differ)" in reason


def test_a_metric_that_one_side_lacks():
    lacks = replace(run("A", 3), metrics={})
    assert (
        pair(run("B", 3), lacks).why_not_comparable(["eval/reward"])
        == "seed 3: eval/reward was not measured in changed"
    )
    assert "kl/k3 was not measured in baseline" in pair(run("B", 3), run("A", 3)).why_not_comparable(
        ["eval/reward", "kl/k3"]
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_number(value):
    reason = pair(run("B", 3), run("A", 3, value)).why_not_comparable(["eval/reward"])
    assert reason == f"seed 3: eval/reward is {value} in changed"


def test_by_task_is_the_mean_over_the_seeds_that_have_it():
    pairs = [
        Pair(0, run("B", 0, tasks={"b": 0.0, "a": 1.0}), run("A", 0, tasks={"b": 1.0, "a": 1.0})),
        Pair(1, run("B", 1, tasks={"a": 0.0}), run("A", 1, tasks={"a": 0.5})),
    ]
    assert task_differences(pairs) == [0.25, 1.0]
    assert task_differences([]) == []


def test_runs_of_two_kinds_of_machine_are_no_pair():
    assert seeds_of(run("B", 0, machine="m1"), run("A", 0, machine="m2")) == []
    assert seeds_of(run("B", 0, machine="m1"), run("A", 0, machine="m2"), run("B", 0, machine="m2")) == [0]


def test_pairs_begin_where_they_are_asked_to():
    runs = both(3, 4, 6)
    assert [pair.seed for pair in pairs_of(history(*runs), "B", "A", range(3, 9))] == [3, 4]
    assert pairs_of(history(*runs), "B", "A", range(9)) == []


def test_other_prompts_are_reported_where_the_arm_is_not_about_them():
    base, arm = (replace(each, prompts=text) for each, text in zip(both(0), ("p", "q"), strict=True))
    pair = Pair(0, base, arm)
    assert "other prompts than the baseline" in pair.why_not_comparable(["eval/reward"], same_prompts=True)
    assert pair.why_not_comparable(["eval/reward"]) == ""
