"""The line of a step in steps.jsonl: its numbers, and the file of its samples."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NotRequired

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from truing.record.fields import check
from truing.types.facts import FACTS
from truing.types.step_table import StepNumbers
from truing.types.values import Count, Number, Text
from truing.utils.jsonl import floats_from_json


@dataclass(frozen=True)
class Segment:
    """The file of a step's samples, a row each, with its checksum."""

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
    """The keys of a ``StepLine``."""

    step: Count
    stage: Text
    loss_label: Text
    metrics: dict[Text, Number | None]
    seconds: dict[Text, Number | None]
    segment: SegmentLine
    facts: NotRequired[dict[Text, Any]]
    events: NotRequired[Count]


LINE = TypeAdapter(Line)


@dataclass(frozen=True, kw_only=True)
class StepLine(StepNumbers):
    """A line of steps.jsonl."""

    segment: Segment
    events: int = 0  # lines of events.jsonl before this one was written

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "StepLine":
        """Return a parsed line, with NaN for ``null``; raise a Misfit if a value does not fit."""
        check(LINE, line)
        numbers = {name: floats_from_json(line[name]) for name in ("metrics", "seconds")}
        facts = check(FACTS, line.get("facts", {}), "facts")
        segment = Segment(**line["segment"])
        return cls(**{**line, **numbers, "segment": segment, "facts": facts})

    def to_json(self) -> dict[str, Any]:
        """Return the line as a dictionary."""
        names = ("stage", "step", "loss_label", "metrics", "seconds", "segment", "facts", "events")
        line = asdict(self)
        return {name: line[name] for name in names}
