"""The console of transformers' Trainer, and so of TRL: a dict per log, between states of the bar.

``PrinterCallback`` and ``ProgressCallback`` (transformers 5.19, trainer_callback.py) print it, numbers as
texts of four digits; transformers 4 printed numbers. It contains no step: the nearest progress bar gives
it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

from truing.doctor.importers.log import has_step
from truing.doctor.importers.python_literals import pairs

if TYPE_CHECKING:
    from truing.doctor.importers.console import Line

DICT = re.compile(r"\{['\"][^{}]*\}")
OPEN = re.compile(r"\{['\"][^{}]*$")
LONGEST = 200
"""The most lines of one printed dict."""
BAR = re.compile(r"\|\s*(\d+)/(\d+) \[")
STEP_NAMES = frozenset({"loss", "reward", "grad_norm", "learning_rate"})
"""A printed dict with one of these is the log of a step; an evaluation and the summary have others."""


def records(lines: "Sequence[Line]") -> list[tuple[str, dict[str, Any]]]:
    """Return the logs of a console log, with steps if the log or the bar gives one for each."""
    entries, bars, last = list[tuple[str, dict[str, float]]](), list[dict[int, int]](), ""
    reached: dict[int, int] = {}  # last position of each bar, by its total
    for line in _joined(lines):
        for hit in DICT.findall(line.text):
            values = pairs(hit)
            if STEP_NAMES & values.keys() and hit != last:  # several processes print the same
                entries.append((line.where, values))
                bars.append(dict(reached))
                last = hit
        for done, total in BAR.findall(line.text):
            reached[int(total)] = int(done)
    if has_step(values for _, values in entries):
        return entries
    if steps := _steps(bars):
        return [
            (where, {**values, "step": step}) for (where, values), step in zip(entries, steps, strict=True)
        ]
    return entries


def _joined(lines: "Sequence[Line]") -> "Iterator[Line]":
    """Yield lines, with a dict over several lines joined into the first."""
    at = 0
    while at < len(lines):
        parts = [lines[at].text]
        if OPEN.search(parts[0]):
            more = list(
                takewhile(lambda text: "{" not in text, (line.text for line in lines[at + 1 :][:LONGEST]))
            )
            ends = next((i for i, text in enumerate(more, 1) if "}" in text), 0)
            parts += more[:ends]
        yield replace(lines[at], text="".join(parts))
        at += len(parts)


def _steps(bars: Sequence[dict[int, int]]) -> list[int]:
    """Return the position of the steps' bar at each log; empty if none advances from log to log."""
    seen = Counter(total for each in bars for total in each)
    for total in sorted(seen, key=lambda total: (seen[total], total), reverse=True):
        steps = [each.get(total, 0) for each in bars]
        if len(steps) > 1 and all(before < after for before, after in pairwise(steps)):
            return steps
    return []
