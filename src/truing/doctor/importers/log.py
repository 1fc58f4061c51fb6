"""A log of scalars, before the trainer is known."""

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truing.errors import RecordError
from truing.types.sample import SampleFacts
from truing.utils.parse import parse_json

STEP_NAMES = (
    "train/global_step",
    "global_step",
    "trainer/global_step",
    "current_steps",
    "step",
    "_step",
    "update",
    "iteration",
)
"""Names of the step number, case-insensitive: a trainer's own count before a tracker's count of calls."""


ROUNDED = re.compile(r"\s*[-+]?0*\.00+\s*")
"""A printed 0 with two decimals or more: the number may be below the last one."""


@dataclass(frozen=True)
class Point:
    """Values logged at one time."""

    step: int | None  # None for a tracker's record outside the steps
    values: Mapping[str, float]  # by the names in the log
    where: str  # for errors: the line, or the record
    rounded: frozenset[str] = frozenset()  # names whose value is printed as 0.000


@dataclass
class Unread:
    """Values of one name that are not numbers."""

    example: str
    where: str  # of the first
    count: int = 0


@dataclass(frozen=True)
class Log:
    """A log of scalars, and the rollouts of a dump."""

    format: str  # the detected format, as text
    points: Sequence[Point]  # in the order of the log
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])  # as the trainer declared it
    rows: Mapping[int, Sequence[SampleFacts]] = field(
        default_factory=dict[int, Sequence[SampleFacts]]
    )  # by step
    steps_counted: bool = False  # whether steps count the records, since the log has none
    unread: Mapping[str, Unread] = field(default_factory=dict[str, Unread])  # by the names in the log
    notes: Sequence[str] = ()  # what of the file was not read, and why


def log_of_records(
    format_name: str,
    records: Iterable[tuple[str, Mapping[str, Any]]],
    config: Mapping[str, Any] = {},
    *,
    steps_counted: bool = False,
    notes: Sequence[str] = (),
) -> Log:
    """Return the log of records with the step among their values.

    Args:
        format_name: the detected format, as text.
        records: the place and the values of each.
        config: as the trainer declared it.
        steps_counted: whether steps count the records, since these have none.
        notes: what of the file was not read, and why.
    """
    numbered = [
        (where, {**record, "step": count} if steps_counted else record)
        for count, (where, record) in enumerate(records, 1)
    ]
    name = _step_name(record for _, record in numbered)
    if not numbered:
        raise RecordError("the log is empty", expected="a record per step", remedy="wait for one")
    if name is None:
        raise RecordError(
            f"{numbered[0][0]} has no step",
            got=", ".join(list(numbered[0][1])[:6])[:MAX_SHOWN],
            expected=f"one of {', '.join(STEP_NAMES)}",
            remedy="export the step with the metrics",
        )
    check_width(len(max((record for _, record in numbered), key=len)), numbered[0][0])
    unread = dict[str, Unread]()
    points = [_point(where, record, name, unread) for where, record in numbered]
    return Log(format_name, points, config, steps_counted=steps_counted, unread=unread, notes=notes)


MAX_SHOWN = 300
"""Characters of names in an error."""

MAX_COLUMNS = 10_000
"""Of a log: more are parameters or texts, not metrics."""


def check_width(columns: int, where: str) -> None:
    """Raise if a table or a record has more columns than a log of metrics."""
    if columns > MAX_COLUMNS:
        raise RecordError(
            f"{where} has too many columns for a log of metrics",
            got=columns,
            expected=f"at most {MAX_COLUMNS}",
            remedy="export the metrics alone",
        )


def short(name: str) -> str:
    """Return a name as it is shown in a line of a report."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"


MAX_NAME = 80
"""Characters of a name in a line."""


def _point(where: str, record: Mapping[str, Any], step_name: str, unread: dict[str, Unread]) -> Point:
    """Return the numbers of a record, and count its other values by name."""
    values, rounded = dict[str, float](), set[str]()
    for key, value in record.items():
        if (number := to_number(value)) is None:
            if value != "":
                unread.setdefault(key, Unread(str(value)[:20], where)).count += 1
            continue
        values[key] = number
        if isinstance(value, str) and ROUNDED.fullmatch(value):
            rounded.add(key)
    step = values.get(step_name)
    if step is not None and not step.is_integer():
        raise RecordError(f"{where} has an invalid step", got=step, expected="a whole number")
    values = {
        key: x for key, x in values.items() if key.lower() not in STEP_NAMES and not key.startswith("_")
    }
    return Point(None if step is None else int(step), values, where, frozenset(rounded))


def has_step(records: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether any record has its step number."""
    return _step_name(records) is not None


def _step_name(records: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the name of the step number in records; None without one."""
    known = {name: None for record in records for name in record if name.lower() in STEP_NAMES}
    return min(known, key=lambda name: STEP_NAMES.index(name.lower()), default=None)


def to_number(value: object) -> float | None:
    """Return the value of a number, or of its text; None for texts, tables and missing values."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines, each with its place."""
    for count, line in enumerate(text_lines(read_text(path)), 1):
        if line.strip():
            record = parse_object(line, where := f"{path}, line {count},")
            check_width(len(record), where)
            yield where, record


def text_lines(text: str) -> list[str]:
    """Return the lines of a text.

    ``str.splitlines`` also splits at characters that a text in JSON or CSV may hold, such as U+2028.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def read_text(path: Path) -> str:
    """Return the text of a file."""
    try:
        return decoded(path.read_bytes())
    except UnicodeDecodeError as error:
        raise RecordError(
            f"{path} is not a text", got=error, expected="UTF-8, or UTF-16 with its mark"
        ) from error


def decoded(raw: bytes, errors: str = "strict") -> str:
    """Return a text from UTF-8, or from UTF-16, which Windows shells and Excel write."""
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return raw.decode("utf-16" if wide else "utf-8-sig", errors)


def parse_value(text: str, where: str) -> Any:
    """Return a JSON value, or raise an error with its place."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise RecordError(
            f"{where} is not JSON", got=error, expected="a JSON object", remedy="copy the file again"
        ) from error


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Return a JSON object, or raise an error with its place."""
    value = parse_value(text, where)
    if not isinstance(value, dict):
        raise RecordError(
            f"{where} is not a JSON object", got=type(value).__name__, expected="names and values"
        )
    return value
