"""Console output of a run: lines with metrics between progress bars, warnings and colours."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truing.doctor.importers import console_openrlhf, console_transformers, console_verl
from truing.doctor.importers.log import Log, decoded, has_step, log_of_records
from truing.errors import RecordError

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
"""Colours and cursor movements (ECMA-48), and titles."""
TABLE_ROW = re.compile(r"(?:\([^()]*\))?\s*[│┃║]")
"""The beginning of a row of a drawn table, after the name of its process. TRL's ``log_completions`` prints
prompts and answers in one, and an answer may look like metrics."""


@dataclass(frozen=True)
class Line:
    """A line of output; text overwritten after a carriage return is a line of its own."""

    text: str
    where: str


Record = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class ConsoleFormat:
    """A trainer's format of printed metrics."""

    name: str
    example: str  # an example line
    records: Callable[[Sequence[Line]], list[Record]] = field(repr=False)


CONSOLE_FORMATS = (
    ConsoleFormat("OpenRLHF's console", "Global step N: {…}", console_openrlhf.records),
    ConsoleFormat("verl's console", "step:N - name:value - …", console_verl.records),
    ConsoleFormat(
        "the console of transformers' Trainer", "{'loss': …, 'grad_norm': …}", console_transformers.records
    ),
)


def read(path: Path) -> Log:
    """Return the metrics of a console log, by the first format with a line in it."""
    raw = decoded(path.read_bytes(), errors="replace")  # a crash may cut a character
    lines = [
        Line(ESCAPE.sub("", part), f"{path}, line {count},")
        for count, line in enumerate(raw.split("\n"), 1)
        for part in line.split("\r")
        if not TABLE_ROW.match(ESCAPE.sub("", part))
    ]
    for form in CONSOLE_FORMATS:
        if records := form.records(lines):
            counted = not has_step(record for _, record in records)
            return log_of_records(form.name, records, steps_counted=counted)
    raise RecordError(
        f"{path} has no metrics",
        got=f"{len(lines)} lines, none of a known trainer",
        expected="lines like " + ", ".join(f"`{form.example}`" for form in CONSOLE_FORMATS),
        remedy="save the run's console output, or name its W&B or TensorBoard log",
    )
