"""Which of two runs is better: paired by task, said only as far as the record goes."""

import math

import pytest
from shown import evaluation, facts_of, opened_run

from truing.analysis.estimate import Estimate
from truing.analysis.evaluation import Evaluation
from truing.analysis.incremental_reader import IncrementalReader
from truing.analysis.paired_difference import MAX_MID_STAGE, MEANS_ONLY, gain_lines, paired_gains, seed_note

FIRST = {f"t{i}": 0.25 * (i % 4) for i in range(12)}
BETTER = {task: reward + 0.5 for task, reward in FIRST.items()}


def evaluation_event(name, reward, failed=()):
    """What the event of an evaluation says that knows its tasks."""
    facts = {"reward": reward, "parts": {}, "answers": {}, "failed": dict.fromkeys(failed, "e")}
    return evaluation(name, 0.5) | facts


@pytest.fixture
def two(tmp_path):
    """Makes two runs of the evaluations that are told of each."""

    def make(first, second, **changes):
        made = []
        for name, events in (("a", first), ("b", second)):
            with opened_run(tmp_path / name, **(changes if name == "b" else {})) as writer:
                for each in events:
                    writer.write_event("eval", **each)
            made.append(IncrementalReader(tmp_path / name))
            made[-1].refresh()
        return made

    return make


def only(two, first, second):
    (found,) = paired_gains(*two([first], [second]))
    return found


def test_the_difference_is_paired_by_task(two):
    gain = only(
        two,
        evaluation_event("after_grpo", FIRST),
        evaluation_event("after_grpo", dict(reversed(BETTER.items()))),
    )
    entries = [Evaluation("after_grpo", each, {}, {}, {}, None) for each in (FIRST, BETTER)]
    assert gain.paired == entries[1].gain_over(entries[0])
    assert gain.difference == pytest.approx(0.5)
    assert (gain.up, gain.down, gain.says) == (12, 0, "the second is better, if differences are symmetric")
    assert gain.first == Estimate(**evaluation("", 0.5)["estimate"], samples=None, supposes="many tasks")


def test_who_is_better_turns_with_the_sides(two):
    gain = only(two, evaluation_event("base", BETTER), evaluation_event("base", FIRST))
    assert (gain.difference, gain.up, gain.down) == (pytest.approx(-0.5), 0, 12)
    assert gain.says == "the first is better, if differences are symmetric"


@pytest.mark.parametrize(
    ("moved", "says"),
    [
        ({}, "the same on every task"),
        (dict.fromkeys(list(FIRST)[:5], 2.0), "too few tasks differ to tell"),
        (dict.fromkeys(list(FIRST)[:6], 2.0), "the second is better, if differences are symmetric"),
        (
            {task: FIRST[task] + (-1) ** i for i, task in enumerate(FIRST)},
            "no difference that these tasks can tell",
        ),
    ],
)
def test_no_more_is_said_than_tasks_can_tell(two, moved, says):
    assert only(two, evaluation_event("base", FIRST), evaluation_event("base", FIRST | moved)).says == says


def test_a_task_that_failed_in_one_is_in_neither(two):
    fewer = {task: reward for task, reward in BETTER.items() if task != "t0"}
    gain = only(two, evaluation_event("base", FIRST), evaluation_event("base", fewer, failed=["t0"]))
    assert (gain.paired.tasks, gain.up) == (11, 11)


def test_one_task_alone_is_not_compared(two):
    gain = only(
        two,
        evaluation_event("base", {"t0": 1.0}, failed=["t1"]),
        evaluation_event("base", {"t1": 1.0}, failed=["t0"]),
    )
    assert (gain.paired, gain.difference) == (None, None)
    assert "fewer than two" in gain.says


def test_other_tasks_are_not_compared(two):
    gain = only(
        two, evaluation_event("base", FIRST), evaluation_event("base", {f"u{task}": 0.0 for task in FIRST})
    )
    assert (gain.paired, gain.difference) == (None, None)
    assert "different tasks" in gain.says


@pytest.mark.parametrize("reward", [None, {"t0": None}, {"t0": math.inf, "t1": 0.0}])
def test_means_alone_have_a_difference_without_an_interval(two, reward):
    told = evaluation("base", 0.7) | ({} if reward is None else {"reward": reward, "failed": {}})
    gain = only(two, evaluation_event("base", FIRST), told)
    assert (gain.difference, gain.paired, gain.says) == (pytest.approx(0.2), None, MEANS_ONLY)


def test_other_rewards_are_not_compared(two):
    first, second = two([evaluation_event("base", FIRST)], [evaluation_event("base", BETTER)])
    second.__dict__["run_json"] = facts_of() | {"judged": {"rewards": {"exact": 2.0}}}
    (found,) = paired_gains(first, second)
    assert (found.difference, found.paired) == (None, None)
    assert "different reward functions" in found.says


def test_what_one_has_alone_is_left_out_and_so_are_early_ones_of_a_stage(two):
    names = ["base", *(f"grpo@{i}" for i in range(1, MAX_MID_STAGE + 4)), "after_grpo"]
    gains = paired_gains(
        *two([evaluation(name, 0.1) for name in (*names, "x")], [evaluation(name, 0.2) for name in names])
    )
    assert [each.name for each in gains] == ["base", *names[4:-1], "after_grpo"]


def test_seeds_are_reported(two):
    assert seed_note(*two([], [])).startswith(
        "both runs have seed 0: one pair does not generalize to other seeds"
    )
    assert list(gain_lines((), "")) == []


def test_other_seeds_may_be_the_difference(two):
    assert seed_note(*two([], [], seed=3)).startswith("seeds 0 and 3: the difference may come from the seeds")


def test_the_terminal_has_a_line_for_each(two):
    gains = paired_gains(
        *two(
            [evaluation_event("base", FIRST), evaluation("x", 0.5)],
            [evaluation_event("base", BETTER), evaluation("x", 0.75)],
        )
    )
    head, *told = [text for text, _ in gain_lines(gains, "both runs have seed 0")]
    assert "both runs have seed 0" in head
    assert [" ".join(line.split()) for line in told] == [
        "base +0.500 over 12 tasks, up on 12, down on 0: the second is better, if differences are symmetric",
        f"x +0.250: {MEANS_ONLY}",
    ]


def answered(counts, **facts):
    """An evaluation of which so many of four answers to each task pass."""
    earned = {f"t{i}": [1.0] * c + [0.0] * (4 - c) for i, c in enumerate(counts)}
    reward = {task: sum(each) / 4 for task, each in earned.items()}
    return (
        evaluation_event("base", reward) | {"bounds": [0.0, 1.0], "earned": earned, "passes_at": 1.0} | facts
    )


def test_several_answers_have_pass_at_k_side_by_side(two):
    gains = paired_gains(*two([answered([0] * 12)], [answered([1] * 12)]))
    assert [each.name for each in gains] == ["base", "base pass@1", "base pass@2", "base pass@4"]
    assert [each.difference for each in gains] == pytest.approx([0.25, 0.25, 0.5, 1.0])
    assert gains[-1].says == "the second is better"
    assert (gains[-1].up, gains[-1].down, gains[-1].paired.tasks) == (12, 0, 12)


@pytest.mark.parametrize("facts", [{"earned": {"t0": [math.nan]}}, {"passes_at": None}])
def test_answers_that_are_no_numbers_have_no_pass_at_k(two, facts):
    assert len(paired_gains(*two([answered([0] * 12)], [answered([1] * 12, **facts)]))) == 1
