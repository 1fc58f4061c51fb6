"""Fitting facts into columns of a terminal: numbers are kept whole, texts are cut between words."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from truing.utils.format import escape_control

BLOCKS = "▁▂▃▄▅▆▇█"
FULL, EMPTY = "━", "─"
GAP = 3
"""Cells between two items of a line."""


def fit_width(text: str, width: int) -> str:
    """The text, inert, in at most so many cells: cut behind a word, as a number cut in two is another."""
    text = escape_control(text)
    if cell_len(text) <= width:
        return text
    head, space, _ = set_cell_size(text, width - 1).rpartition(" ")
    return f"{head.rstrip()} …" if space and head.strip() else set_cell_size(text, width - 1) + "…"


def flow(items: Sequence[Text], width: int, gap: int = GAP) -> list[Text]:
    """Items one behind the other, in as many lines as they take; none is broken."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + gap + item.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], " " * gap, item)
        else:
            lines.append(item)
    return lines


def wrap_lines(text: str, width: int, lines: int) -> list[Text]:
    """The text in at most so many lines, broken between words; what is too long is clipped."""
    broken = flow([Text(fit_width(word, width)) for word in text.split()], width, gap=1)
    rest = " ".join(line.plain for line in broken[lines - 1 :])
    return [*broken[: lines - 1], Text(fit_width(rest, width))] if rest else broken


def sparkline(values_N: NDArray[np.float64], cells: int) -> tuple[str, float, float]:
    """Means of as many stretches as there are cells, drawn from the least to the most, and these two."""
    parts = np.array_split(values_N, min(cells, len(values_N)))
    mean_N = np.array([part.mean() for part in parts])
    low, high = float(mean_N.min()), float(mean_N.max())
    top = len(BLOCKS) - 1
    if low == high:
        return BLOCKS[top // 2] * len(mean_N), low, high
    return "".join(BLOCKS[round(float(share) * top)] for share in (mean_N - low) / (high - low)), low, high


def bar(done: int, total: int, cells: int) -> str:
    """How much of it is done."""
    full = min(cells, cells * done // max(1, total))
    return FULL * full + EMPTY * (cells - full)
