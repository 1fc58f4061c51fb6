"""Fits text into the columns of a terminal: numbers stay whole, text breaks between words."""

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
    """Return the escaped text in at most ``width`` cells, cut after a word so that no number is cut."""
    text = escape_control(text)
    if cell_len(text) <= width:
        return text
    head, space, _ = set_cell_size(text, width - 1).rpartition(" ")
    return f"{head.rstrip()} …" if space and head.strip() else set_cell_size(text, width - 1) + "…"


def flow(items: Sequence[Text], width: int, gap: int = GAP) -> list[Text]:
    """Return the items in lines; no item is broken."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + gap + item.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], " " * gap, item)
        else:
            lines.append(item)
    return lines


def wrap_lines(text: str, width: int, lines: int) -> list[Text]:
    """Return the text in at most ``lines`` lines, broken between words; a longer one is clipped."""
    broken = flow([Text(fit_width(word, width)) for word in text.split()], width, gap=1)
    rest = " ".join(line.plain for line in broken[lines - 1 :])
    return [*broken[: lines - 1], Text(fit_width(rest, width))] if rest else broken


def sparkline(values_N: NDArray[np.float64], cells: int) -> tuple[str, float, float]:
    """Return a sparkline of means over ``cells`` intervals, and its lowest and highest mean."""
    parts = np.array_split(values_N, min(cells, len(values_N)))
    mean_N = np.array([part.mean() for part in parts])
    low, high = float(mean_N.min()), float(mean_N.max())
    top = len(BLOCKS) - 1
    if low == high:
        return BLOCKS[top // 2] * len(mean_N), low, high
    return "".join(BLOCKS[round(float(share) * top)] for share in (mean_N - low) / (high - low)), low, high


def bar(done: int, total: int, cells: int) -> str:
    """Return a progress bar."""
    full = min(cells, cells * done // max(1, total))
    return FULL * full + EMPTY * (cells - full)
