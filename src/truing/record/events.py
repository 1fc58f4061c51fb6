"""An event of a run, and the facts that each kind of event has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from truing.record.fields import check
from truing.types.values import Bytes, Count, Digits, Integer, Number, Text, Time

Assumption = Literal["", "normal rewards", "many tasks"]
"""The assumption of an interval beyond reward bounds: normal values, or many tasks."""

VerdictName = Literal["PROVEN", "EVIDENCE", "SUSPECT", "CANNOT TELL", "FACT", "NOT CHECKED", "CLEAN"]


class Note(TypedDict):
    """Any event: where it was, and a text."""

    stage: NotRequired[Text]
    step: NotRequired[Integer]
    text: NotRequired[Text]
    message: NotRequired[Text | None]


class Numbers(Note):
    """Metric names, before the first line that has them."""

    names: list[Text]


class Stage(Note):
    """The start of a stage."""

    stage: Text
    steps: Count
    first_step: Count


class Position(Note):
    """A step of a stage."""

    stage: Text
    step: Count


class Resumed(Position):
    """A run that goes on from a step."""

    suppress: NotRequired[dict[Text, Text]]


class Longer(Position):
    """More steps of a stage than before."""

    before: Count
    steps: Count


class Boundary(Position):
    """First tokens as text, each line with its rules."""

    lines: list[tuple[Text, Text]]


class Mean(TypedDict):
    """A mean with its interval."""

    mean: Number | None
    low: Number | None
    high: Number | None
    tasks: NotRequired[Count | None]
    samples: NotRequired[Count | None]
    supposes: NotRequired[Assumption]


class Evaluation(Note):
    """The rewards of an evaluation, by task."""

    name: Text
    estimate: Mean
    reward: NotRequired[dict[Text, Number | None]]
    parts: NotRequired[dict[Text, Number | None]]
    answers: NotRequired[dict[Text, list[Text]]]
    failed: NotRequired[dict[Text, Text]]
    bounds: NotRequired[tuple[Number | None, Number | None] | None]
    earned: NotRequired[dict[Text, list[Number | None]]]
    second: NotRequired[dict[Text, list[Number | None]]]
    second_estimate: NotRequired[Mean]
    passes_at: NotRequired[Number | None]
    pass_at: NotRequired[dict[Digits, Mean]]


class RuleFinding(Position):
    """What a rule found."""

    code: Text
    name: Text
    verdict: VerdictName
    sample_id: Text
    start: Integer
    end: Integer
    what: Text
    got: Text
    expected: Text
    remedy: Text
    log10_odds: Number | None
    marks: dict[Text, list[tuple[Integer, Integer]]]


class Incident(Note):
    """Something out of the ordinary."""

    what: Text
    text: Text


class Rollback(Position):
    """Steps that a guard undid."""

    to: Count
    reason: Text
    kept: Text
    change: NotRequired[list[Text]]


class Declared(TypedDict):
    """What run.json says of the steps of a run."""

    recipe: dict[Text, Any]
    sampling_params: dict[Text, Any]
    judged: dict[Text, Any]


class Forked(Position):
    """The start of a fork, and what was declared for the steps before."""

    parent: Text
    before: Declared


class GaveUp(Note):
    """A guard whose rollbacks did not help."""

    reason: Text


class Stopped(Note):
    """Why a run stopped."""

    error: Text
    reason: Text


class Checkpoint(Note):
    """A checkpoint that was written."""

    name: Text
    weight_digest: NotRequired[Text]


class MemoryNeed(TypedDict):
    """Bytes that a step needs."""

    fixed: Bytes
    per_token: Bytes
    per_token_recomputed: Bytes | None


class Memory(Note):
    """What fits into a micro-batch."""

    need: MemoryNeed
    most: Bytes
    fits: Bytes
    fits_recomputed: Bytes


class Loss(Position):
    """What the loss of a step means."""

    label: Text
    text: Text


PAYLOADS: Mapping[str, Any] = {
    "numbers": Numbers,
    "stage": Stage,
    "boundary": Boundary,
    "eval": Evaluation,
    "finding": RuleFinding,
    "fact": RuleFinding,
    "incident": Incident,
    "rollback": Rollback,
    "reference": Position,
    "resumed": Resumed,
    "longer": Longer,
    "forked": Forked,
    "best": Position,
    "gave_up": GaveUp,
    "stopped": Stopped,
    "checkpoint": Checkpoint,
    "memory": Memory,
    "loss": Loss,
}
"""Facts by kind of event; there may be more, and other kinds. A finding without a rule has only a text."""

_PAYLOADS = {kind: TypeAdapter(payload) for kind, payload in PAYLOADS.items()}
_NOTE = TypeAdapter(Note)


@with_config(ConfigDict(extra="forbid"))
class Line(TypedDict):
    """A line of events.jsonl."""

    time: Time
    kind: Text
    payload: dict[Text, Any]


_LINE = TypeAdapter(Line)


@dataclass(frozen=True)
class Event:
    """An event of a run."""

    time: float  # seconds since 1970, UTC
    kind: str
    payload: Mapping[str, Any]

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "Event":
        """Return the event of a parsed line; raise a Misfit if a value has another type than events have."""
        check(_LINE, line)
        event = cls(**line)
        has_no_rule = event.kind == "finding" and "code" not in event.payload
        check(_NOTE if has_no_rule else _PAYLOADS.get(event.kind, _NOTE), event.payload, event.kind)
        return event
