"""The record of an update: a row per sample, and a line per step."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NotRequired

from pydantic import ConfigDict, TypeAdapter, with_config
from torch import Tensor
from typing_extensions import TypedDict

from truing.errors import InvalidValueError
from truing.record.facts import FACTS
from truing.record.fields import Count, Number, Text, check
from truing.types.batch import StepRecord
from truing.types.message import Message
from truing.types.sample import Sample
from truing.types.status import EndedBy, Status
from truing.utils.jsonl import floats_from_json, infinities_from_json

TRAINER_NUMBERS = ("new_logprob", "entropy", "raw_entropy", "token_gradient")


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleRow:
    """A sample of an update, with the text and the rewards of its rollout.

    The trainer's values are NaN at tokens that were not scored.
    """

    sample: Sample
    new_logprob: (
        Tensor  # [T] float32, nats, of the weights before this update, under the sample's sampling parameters
    )
    entropy: Tensor  # [T] float32, nats, of the distribution that was sampled from
    raw_entropy: Tensor  # [T] float32, nats, of the model's own distribution
    token_gradient: (
        Tensor  # [T] float32, −∂loss/∂logprob: how hard the update pulled the token's log-probability up
    )
    inner_step: int  # the update of the step that these values are from; −1 if the row was in none
    text: str
    status: Status
    reward_parts: Mapping[str, float]
    messages: tuple[Message, ...]  # of the prompt, then of the rollout
    outcome: Mapping[str, Any]  # the environment's final state
    ended_by: EndedBy
    error: str

    def __post_init__(self) -> None:
        expected = (len(self.sample),)
        for name in TRAINER_NUMBERS:
            got = tuple(getattr(self, name).shape)
            if got != expected:
                raise InvalidValueError(
                    f"{name} of sample {self.sample.sample_id} does not cover its tokens",
                    got=got,
                    expected=expected,
                )


@dataclass(frozen=True)
class Segment:
    """The file of a step's rows, with its checksum."""

    file: str
    rows: int
    sha256: str


class SegmentLine(TypedDict):
    """The keys of a ``Segment``; ``segment_path`` checks the name."""

    file: Any
    rows: Count
    sha256: Text


@with_config(ConfigDict(extra="forbid"))
class Line(TypedDict):
    """The keys of a ``StepRow``."""

    step: Count
    stage: Text
    loss_label: Text
    metrics: dict[Text, Number | None]
    seconds: dict[Text, Number | None]
    segment: SegmentLine
    facts: NotRequired[dict[Text, Any]]
    events: NotRequired[Count]


LINE = TypeAdapter(Line)


@dataclass(frozen=True)
class StepRow:
    """One update: a line of steps.jsonl."""

    step: int
    stage: str
    loss_label: str
    metrics: Mapping[str, float]
    seconds: Mapping[str, float]
    segment: Segment
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    events: int = 0  # lines of events.jsonl before this one was written

    @classmethod
    def from_record(cls, record: StepRecord, segment: Segment) -> "StepRow":
        """Return the line of a record with its rows in ``segment``."""
        return cls(
            record.step,
            record.stage,
            record.loss_label,
            record.metrics,
            record.seconds,
            segment,
            record.facts,
        )

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "StepRow":
        """Return the row of a parsed line, with NaN for ``null``; raise a Misfit if a value does not fit."""
        check(LINE, line)
        numbers = {name: floats_from_json(line[name]) for name in ("metrics", "seconds")}
        facts = line.get("facts", {})
        check(FACTS, facts, "facts")
        segment = Segment(**line["segment"])
        return cls(**{**line, **numbers, "segment": segment, "facts": infinities_from_json(facts)})

    def to_json(self) -> dict[str, Any]:
        """Return the line as a dictionary."""
        return asdict(self)
