"""What a run directory holds of an update: a row per sample, and a line per step."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from truing.errors import InvalidValueError
from truing.types.batch import StepRecord
from truing.types.message import Message
from truing.types.sample import Sample
from truing.types.status import EndedBy, Status
from truing.utils.jsonl import floats_from_json, infinities_from_json

TRAINER_NUMBERS = ("new_logprob", "entropy", "raw_entropy", "pull")


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleRow:
    """A sample as an update saw it, with what its rollout said and earned.

    The trainer's numbers are NaN where nothing was scored.
    """

    sample: Sample
    new_logprob: Tensor  # [T] float32, nats, of the weights before this update, under the sample's contract
    entropy: Tensor  # [T] float32, nats, of the distribution that was drawn from
    raw_entropy: Tensor  # [T] float32, nats, of the model's own distribution
    pull: Tensor  # [T] float32, −∂loss/∂logprob: how hard the update pulled the token's log-probability up
    inner_step: int  # of which update of the step these are the numbers; −1 where the row was in none
    text: str
    status: Status
    reward_parts: Mapping[str, float]
    messages: tuple[Message, ...]  # the prompt's, then what was said
    outcome: Mapping[str, Any]  # the world's final state
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
    """The file that a step's rows were written to, and how to know that it is whole."""

    file: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class StepRow:
    """One update as steps.jsonl tells it."""

    step: int
    stage: str
    loss_label: str
    metrics: Mapping[str, float]
    seconds: Mapping[str, float]
    segment: Segment
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def from_record(cls, record: StepRecord, segment: Segment) -> "StepRow":
        """The line of a record whose rows lie in ``segment``."""
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
        """The inverse of ``dataclasses.asdict`` over JSON; ``null`` becomes NaN."""
        numbers = {name: floats_from_json(line[name]) for name in ("metrics", "seconds")}
        facts = infinities_from_json(line.get("facts", {}))
        return cls(**{**line, **numbers, "segment": Segment(**line["segment"]), "facts": facts})

    def to_json(self) -> dict[str, Any]:
        """The line as a dictionary."""
        return asdict(self)
