"""What a log told, before anybody knows whose it is."""

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truing.doctor.evidence import Row
from truing.errors import RecordError

STEP_NAMES = ("train/global_step", "global_step", "step", "_step", "update", "iteration")
"""What the number of an update is called, in any case: a trainer's own count before a tracker's of calls."""


@dataclass(frozen=True)
class Point:
    """What was logged at once."""

    step: int | None  # None where a tracker was told something beside the updates
    values: Mapping[str, float]  # by the names that the log has
    where: str  # for errors: the line, or the record


@dataclass(frozen=True)
class Log:
    """A log of scalars, and the attempts where somebody dumped them."""

    format: str  # what it was read as, in words
    points: Sequence[Point]  # in the order of the log
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])  # as the trainer declared it
    rows: Mapping[int, Sequence[Row]] = field(default_factory=dict[int, Sequence[Row]])  # by step
    steps_counted: bool = False  # whether steps are those of the records, for the log has none


def points(records: Iterable[tuple[str, Mapping[str, Any]]], steps_counted: bool = False) -> list[Point]:
    """Points of records that have the step among their values; what is no number is left out.

    Args:
        records: where each is, and what it says.
        counted: whether the records have no step, and are counted.
    """
    told = [
        (where, {**record, "step": count} if steps_counted else record)
        for count, (where, record) in enumerate(records, 1)
    ]
    name = _step_name(record for _, record in told)
    if not told:
        raise RecordError("the log holds nothing yet", expected="a record per update", remedy="wait for one")
    if name is None:
        raise RecordError(
            f"{told[0][0]} has no step",
            got=", ".join(list(told[0][1])[:6]),
            expected=f"one of {', '.join(STEP_NAMES)}",
            remedy="export the step with the metrics",
        )
    made = []
    for where, record in told:
        values = {key: x for key, value in record.items() if (x := to_number(value)) is not None}
        step = values.get(name)
        if step is not None and not step.is_integer():
            raise RecordError(f"{where} has a step that is none", got=step, expected="a whole number")
        values = {
            key: x for key, x in values.items() if key.lower() not in STEP_NAMES and not key.startswith("_")
        }
        made.append(Point(None if step is None else int(step), values, where))
    return made


def has_step(records: Iterable[Mapping[str, Any]]) -> bool:
    """Whether any record says of which update it is."""
    return _step_name(records) is not None


def _step_name(records: Iterable[Mapping[str, Any]]) -> str | None:
    """The name under which records have the number of their update; None where they have none."""
    known = {name: None for record in records for name in record if name.lower() in STEP_NAMES}
    return min(known, key=lambda name: STEP_NAMES.index(name.lower()), default=None)


def to_number(value: object) -> float | None:
    """The value where it is a number, or a text of one; None for texts, tables and what was not told."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place."""
    for count, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            yield f"{path}, line {count},", parse_object(line, f"{path}, line {count},")


def read_text(path: Path) -> str:
    """What a file says."""
    try:
        return decoded(path.read_bytes())
    except UnicodeDecodeError as error:
        raise RecordError(
            f"{path} is no text", got=error, expected="UTF-8, or UTF-16 with its mark"
        ) from error


def decoded(raw: bytes, errors: str = "strict") -> str:
    """A text in UTF-8, or in UTF-16, as a shell of Windows and Excel write it."""
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return raw.decode("utf-16" if wide else "utf-8-sig", errors)


def parse_object(text: str, where: str) -> dict[str, Any]:
    """A JSON object, or an error that says where."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordError(
            f"{where} is no JSON", got=error, expected="a JSON object", remedy="copy the file anew"
        ) from error
    if not isinstance(value, dict):
        raise RecordError(f"{where} is no JSON object", got=type(value).__name__, expected="names and values")
    return value
