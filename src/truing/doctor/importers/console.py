"""What a run printed: a text that holds lines with metrics among progress bars, warnings and colours."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truing.doctor.importers import console_openrlhf, console_transformers, console_verl
from truing.doctor.importers.log import Log, decoded, has_step, points
from truing.errors import RecordError

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
"""Colours and moves of the cursor (ECMA-48), and titles."""


@dataclass(frozen=True)
class Line:
    """A line as it was shown; what a carriage return wrote over is a line of its own."""

    text: str
    where: str


Record = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class ConsoleFormat:
    """A trainer's way of printing its metrics."""

    name: str
    example: str  # what its lines look like
    records: Callable[[Sequence[Line]], list[Record]] = field(repr=False)


CONSOLE_FORMATS = (
    ConsoleFormat("OpenRLHF's console", "Global step N: {…}", console_openrlhf.records),
    ConsoleFormat("verl's console", "step:N - name:value - …", console_verl.records),
    ConsoleFormat(
        "the console of transformers' Trainer", "{'loss': …, 'grad_norm': …}", console_transformers.records
    ),
)


def read(path: Path) -> Log:
    """The metrics of a console log, by the first form that has a line in it."""
    raw = decoded(path.read_bytes(), errors="replace")  # a crash may leave half a character
    shown = [
        Line(ESCAPE.sub("", part), f"{path}, line {count},")
        for count, line in enumerate(raw.split("\n"), 1)
        for part in line.split("\r")
    ]
    for form in CONSOLE_FORMATS:
        if records := form.records(shown):
            counted = not has_step(record for _, record in records)
            return Log(form.name, points(records, counted), steps_counted=counted)
    raise RecordError(
        f"{path} holds no metrics",
        got=f"{len(shown)} lines, none of which is a trainer's",
        expected="lines like " + ", ".join(f"`{form.example}`" for form in CONSOLE_FORMATS),
        remedy="keep what the run prints, or name what W&B or TensorBoard have of it",
    )
