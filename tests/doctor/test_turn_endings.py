"""Turns and rollouts that end otherwise than their record says, and those that only look so."""

from dataclasses import replace

import pytest

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import STOP_ID, example_step
from truing.doctor.rule_state import examine
from truing.doctor.rules import RULES
from truing.doctor.rules.len005 import cut, ended
from truing.doctor.verdict import Verdict
from truing.types.status import EndedBy, FinishReason, Status


def claims_of(step):
    found = examine(step, [RULES["LEN005"]])
    return [(each.claim.verdict, each.claim.what) for each in found]


def other_stop():
    step = example_step()
    ids_N = step.tokens["token_ids"].clone()
    ids_N[step.starts[3] + step.lengths[3] - 1] = 30
    return changed_step(step, token_ids=ids_N)


def stop_inside():
    step = example_step()
    ids_N = step.tokens["token_ids"].clone()
    ids_N[step.starts[3] + 5] = STOP_ID
    return changed_step(step, token_ids=ids_N)


def pads_behind():
    step = example_step()
    ids_N = step.tokens["token_ids"].clone()
    end = step.starts[2] + step.lengths[2]
    ids_N[end - 4 : end] = STOP_ID
    return changed_step(step, token_ids=ids_N)


def one_too_long():
    return changed_step(example_step(answers=(4, 3, 5, 9, 4, 3, 4, 5)))


def with_a_stop_though_cut():
    return ended(
        example_step(answers=(4, 3, 5, 8, 4, 3, 4, 5)),
        3,
        FinishReason.LENGTH,
        EndedBy.LENGTH,
        Status.TRUNCATED,
    )


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (cut(7), "ended by length before"),
        (one_too_long(), "are longer than"),
        (other_stop(), "not a declared stop"),
        (pads_behind(), "go on after a stop id"),
        (stop_inside(), "have further sampled ids after a stop id"),
        (with_a_stop_though_cut(), "end with a stop id"),
        (
            ended(example_step(), 3, FinishReason.STOP, EndedBy.LENGTH, Status.TRUNCATED),
            "their last turn stopped",
        ),
        (ended(cut(8), 3, FinishReason.LENGTH, EndedBy.LENGTH, Status.DONE), "count as done"),
        (
            ended(example_step(), 3, FinishReason.STOP, EndedBy.ENVIRONMENT, Status.TRUNCATED),
            "count as truncated",
        ),
        (
            changed_step(
                ended(example_step(), 3, FinishReason.TOOL, EndedBy.TURNS, Status.TRUNCATED),
                setup={"max_turns": 2},
            ),
            "have another number",
        ),
    ],
)
def test_a_contradiction_is_proven_and_named(step, says):
    (found,) = claims_of(step)
    assert found[0] is Verdict.PROVEN
    assert says in found[1]


@pytest.mark.parametrize(
    "step",
    [
        example_step(),
        cut(8),
        ended(example_step(), 3, FinishReason.STOP, EndedBy.TIME, Status.TRUNCATED),
        ended(example_step(), 3, FinishReason.STOP, EndedBy.CONTEXT, Status.TRUNCATED),
        changed_step(
            ended(example_step(), 3, FinishReason.TOOL, EndedBy.TURNS, Status.TRUNCATED),
            setup={"max_turns": 1},
        ),
    ],
)
def test_what_other_limits_end_is_left_alone(step):
    assert claims_of(step) == []


def test_another_trainers_short_answer_is_suspected_only_where_the_context_was_not_full():
    def foreign(step):
        return changed_step(
            step, samples={i: {"sampling_params": None, "ended_by": ""} for i in range(len(step.samples))}
        )

    assert claims_of(foreign(cut(5))) == []  # no row is longer: the context may have been full
    shorter = cut(4)
    assert [verdict for verdict, _ in claims_of(foreign(shorter))] == [Verdict.SUSPECT]


def test_the_rows_of_a_rollout_may_come_in_any_order():
    """Two rows of one rollout, whose last turn was cut: a minibatch computes the second one first."""
    step = example_step(answers=(4, 8, 5, 4, 4, 3, 4, 5))
    ids_N = step.tokens["token_ids"].clone()
    ids_N[step.starts[1] + step.lengths[1] - 1] = 30
    end = {"rollout_id": "rollout", "ended_by": str(EndedBy.LENGTH), "status": str(Status.TRUNCATED)}
    (turn,) = step.samples[1].turns
    rows = {
        1: end | {"sample_id": "rollout#1", "turns": (replace(turn, finish_reason=FinishReason.LENGTH),)},
        2: end | {"sample_id": "rollout#0"},
    }
    step = changed_step(step, token_ids=ids_N, samples=rows)
    rollout = next(each for each in step.rollouts() if len(each) == 2)
    assert [row.sample_id for _, row, _ in rollout] == ["rollout#0", "rollout#1"]
    assert claims_of(step) == []
