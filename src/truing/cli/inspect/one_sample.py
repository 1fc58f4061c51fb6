"""One sample of a run: how it is selected, and the numbers of each token."""

from collections.abc import Sequence
from typing import Any, TypeVar

from truing.analysis.program_calls import call_tree
from truing.doctor.report.first_steps import first_tokens
from truing.errors import RecordError
from truing.record import Event
from truing.types.sample import MASKS
from truing.types.step_table import StepNumbers, StepTable
from truing.types.token import Excluded, Origin

Numbers = TypeVar("Numbers", bound=StepNumbers)

NUMBERS = {
    "sampler": "sampler_logprob",
    "old": "old_logprob",
    "new": "new_logprob",
    "ref": "ref_logprob",
    "value": "value",
    "return": "returns",
    "advantage": "advantage",
    "token_gradient": "token_gradient",
}
"""Recorded streams by the names of `truing tokens`."""


def choose_step(steps: Sequence[Numbers], stage: str | None, number: int | None) -> Numbers:
    """Return the last recorded step, of this stage and number (from 1) if given."""
    for row in reversed(steps):
        if stage in (None, row.stage) and number in (None, row.step + 1):
            return row
    request = {"stage": stage, "step": number}
    last_steps: dict[str, int] = {}
    for row in steps:
        last_steps[row.stage] = max(last_steps.get(row.stage, 0), row.step + 1)
    raise RecordError(
        "the run has no such step",
        got=", ".join(f"{name} {value}" for name, value in request.items() if value is not None),
        expected="; ".join(f"{name} up to {last}" for name, last in last_steps.items())
        or "no step is recorded yet",
    )


def choose_sample(table: StepTable, named: str) -> int:
    """Return the index of the sample of a step with this number, from 1, or this id."""
    by_name = {str(index + 1): index for index in range(len(table.samples))}
    by_name |= {sample.sample_id: index for index, sample in enumerate(table.samples)}
    if named not in by_name:
        raise RecordError(
            "the step has no such sample",
            got=named,
            expected=f"1 to {len(table.samples)}, or the id of a sample",
        )
    return by_name[named]


def choose_first_tokens(
    events: Sequence[Event], stage: str | None, number: int | None
) -> list[dict[str, Any]]:
    """Return the recorded first tokens of steps, of this stage and number (from 1) if given."""
    recorded = first_tokens(events)
    chosen = [each for each in recorded if stage in (None, each["stage"]) and number in (None, each["step"])]
    if not chosen:
        raise RecordError(
            "no such step recorded its first tokens",
            got=" ".join(str(each) for each in (stage, number) if each is not None) or None,
            expected=", ".join(f"{each['stage']} {each['step']}" for each in recorded)
            or "the first steps of a stage, which are not recorded yet",
        )
    return chosen


def sample_facts(table: StepTable, index: int) -> dict[str, Any]:
    """Return the facts of the sample as a whole."""
    sample = table.samples[index]
    return {
        "stage": table.stage,
        "step": table.step + 1,
        "sample_id": sample.sample_id,
        "group_id": sample.group_id,
        "task_id": sample.task_id,
        "status": sample.status,
        "reward": sample.reward,
        "truncated": sample.truncated,
        "error": sample.error,
        "reward_parts": dict(sample.reward_parts),
        # false if no loss term has a gradient
        "computed": bool(table.stream("new_logprob")[table.part(index)].isfinite().any()),
    }


def call_facts(table: StepTable, index: int) -> list[dict[str, Any]]:
    """Return the calls of the program that made the sample's rollout, in the order of their tree."""
    return [line._asdict() for line in call_tree(table, index)]


def token_list(table: StepTable, index: int, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return each token's text, origin, masks and numbers; a number that is not recorded is NaN."""
    part = table.part(index)
    numbers = {name: table.stream(recorded)[part] for name, recorded in NUMBERS.items()}
    numbers["ratio"] = (numbers["new"] - numbers["old"]).exp()
    names = ("token_ids", "origin", "excluded", *MASKS)
    exact = {name: table.codes(name)[part].tolist() for name in names}
    turns = [turn for turn in table.samples[index].turns if turn.call]
    call_of = {t: turn.call for turn in turns for t in range(turn.start, turn.end)}
    return [
        {
            "index": t,
            "id": exact["token_ids"][t],
            "text": texts[t],
            "origin": Origin(exact["origin"][t]).name,
            "masks": [name.removesuffix("_mask") for name in MASKS if exact[name][t]],
            "excluded": Excluded(exact["excluded"][t]).name,
            **({"call": call_of.get(t)} if call_of else {}),
            **{name: float(stream_T[t]) for name, stream_T in numbers.items()},
        }
        for t in range(table.lengths[index])
    ]
