"""One sample of a run: how it is selected, and the numbers of each token."""

from collections.abc import Sequence
from typing import Any

from truing.doctor.report.first_updates import first_tokens
from truing.errors import RecordError
from truing.record import Event, SampleRow, StepRow
from truing.types.sample import MASKS
from truing.types.token import Excluded, Origin


def choose_step(steps: Sequence[StepRow], stage: str | None, update: int | None) -> StepRow:
    """Return the last recorded update, of this stage and number (from 1) if given."""
    for row in reversed(steps):
        if stage in (None, row.stage) and update in (None, row.step + 1):
            return row
    request = {"stage": stage, "update": update}
    last_updates: dict[str, int] = {}
    for row in steps:
        last_updates[row.stage] = max(last_updates.get(row.stage, 0), row.step + 1)
    raise RecordError(
        "the run has no such update",
        got=", ".join(f"{name} {value}" for name, value in request.items() if value is not None),
        expected="; ".join(f"{name} up to {last}" for name, last in last_updates.items())
        or "no update is recorded yet",
    )


def choose_sample(rows: Sequence[SampleRow], named: str) -> SampleRow:
    """Return the sample of an update with this number, from 1, or this id."""
    by_name = {str(number): row for number, row in enumerate(rows, 1)}
    by_name |= {row.sample.sample_id: row for row in rows}
    if named not in by_name:
        raise RecordError(
            "the update has no such sample", got=named, expected=f"1 to {len(rows)}, or the id of a sample"
        )
    return by_name[named]


def choose_first_tokens(
    events: Sequence[Event], stage: str | None, update: int | None
) -> list[dict[str, Any]]:
    """Return the recorded first tokens of updates, of this stage and number (from 1) if given."""
    recorded = first_tokens(events)
    chosen = [
        each for each in recorded if stage in (None, each["stage"]) and update in (None, each["update"])
    ]
    if not chosen:
        raise RecordError(
            "no such update recorded its first tokens",
            got=" ".join(str(each) for each in (stage, update) if each is not None) or None,
            expected=", ".join(f"{each['stage']} {each['update']}" for each in recorded)
            or "the first updates of a stage, which are not recorded yet",
        )
    return chosen


def sample_facts(step: StepRow, row: SampleRow) -> dict[str, Any]:
    """Return the facts of the sample as a whole."""
    sample = row.sample
    return {
        "stage": step.stage,
        "update": step.step + 1,
        "sample_id": sample.sample_id,
        "group_id": sample.group_id,
        "task_id": sample.task_id,
        "status": str(row.status),
        "reward": sample.reward,
        "truncated": sample.truncated,
        "reward_parts": dict(row.reward_parts),
        "computed": bool(row.new_logprob.isfinite().any()),  # false if no loss term has a gradient
    }


def token_list(row: SampleRow, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return each token's text, origin, masks and numbers; a number that is not recorded is NaN."""
    sample = row.sample
    streams = {
        "sampler": sample.sampler_logprob,
        "old": sample.old_logprob,
        "new": row.new_logprob,
        "ref": sample.ref_logprob,
        "ratio": (row.new_logprob - sample.old_logprob).exp(),
        "value": sample.value,
        "return": sample.returns,
        "advantage": sample.advantage,
        "token_gradient": row.token_gradient,
    }
    return [
        {
            "index": t,
            "id": int(sample.token_ids[t]),
            "text": texts[t],
            "origin": Origin(int(sample.origin[t])).name,
            "masks": [name.removesuffix("_mask") for name in MASKS if getattr(sample, name)[t]],
            "excluded": Excluded(int(sample.excluded[t])).name,
            **{name: float(stream[t]) for name, stream in streams.items()},
        }
        for t in range(len(sample))
    ]
