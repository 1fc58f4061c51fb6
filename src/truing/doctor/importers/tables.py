"""Scalars as a table: CSV with a step column, or a JSON object a line; also W&B's exports.

W&B exports a run's history with its own names (``run.history().to_csv()``), and a chart with a column
``RUN - METRIC`` for each run, beside the smallest and largest value of what was merged into a point.
A blank or NaN cell means that nothing was logged there.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from truing.doctor.importers.log import Log, has_step, json_lines, points, read_text, text_lines
from truing.errors import RecordError

MERGED = ("__MIN", "__MAX")
SEPARATORS = (",", ";", "\t")
DECIMALS = re.compile(r"(?<=\d),(?=\d+(?:[eE][-+]?\d+)?\s*$)")


def read_jsonl(path: Path) -> Log:
    """Return the log of a file with a JSON object per line."""
    return log_of(path, list(json_lines(path)))


def log_of(path: Path, records: Sequence[tuple[str, Mapping[str, Any]]]) -> Log:
    """Return the records of a file; those of transformers, with an epoch and no step, are counted."""
    rows = [record for _, record in records]
    counted = not has_step(rows) and any("epoch" in record for record in rows)
    return Log(str(path.name), points(records, counted), steps_counted=counted)


def read_csv(path: Path, run: str | None) -> Log:
    """Return the log of a table with a header.

    Args:
        path: of the file.
        run: the name of the run, for a chart's export with several.
    """
    table = _cells(read_text(path))
    if len(table) < 2:
        raise RecordError(
            f"{path} has no row", got=f"{len(table)} lines", expected="a header, and a row per update"
        )
    header = _columns_of_run([name.strip() for name in table[0][1]], run, path)
    return Log(str(path.name), points(_records(path, header, table[1:])))


def _cells(text: str) -> list[tuple[int, list[str]]]:
    """Yield the cells of each nonempty row, and its last line; the header is the first row without #.

    The most frequent separator of the header separates cells. With a semicolon, a comma is the decimal point.
    """
    lines = text_lines(text)
    start = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    separator = max(SEPARATORS, key="".join(lines[start : start + 1]).count)
    reader = csv.reader(lines[start:], delimiter=separator)
    rows = [(start + reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    if separator != ";":
        return rows
    return [(count, [DECIMALS.sub(".", cell) for cell in row]) for count, row in rows]


def _records(
    path: Path, header: list[str | None], rows: list[tuple[int, list[str]]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for count, row in rows:
        if len(row) != len(header):
            raise RecordError(
                f"{path}, line {count}, has another number of cells than the header",
                got=len(row),
                expected=len(header),
                remedy="export the table again",
            )
        cells = {name: _cell(text) for name, text in zip(header, row, strict=True) if name}
        yield f"{path}, line {count},", {name: x for name, x in cells.items() if x is not None}


def _cell(text: str) -> float | None:
    """Return a number; None for an empty cell."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _columns_of_run(header: list[str], run: str | None, path: Path) -> list[str | None]:
    """Return names of metrics; None for columns of other runs, and for the bounds of merged points."""
    runs = {name.partition(" - ")[0] for name in header if " - " in name}
    if not runs:
        return list(header)
    if run is None and len(runs) == 1:
        (run,) = runs
    if run not in runs:
        raise RecordError(
            f"{path} has several runs" if run is None else f"{path} has no such run",
            got=run,
            expected=", ".join(sorted(runs)),
            remedy="name one: run=NAME",
        )
    return [
        None
        if name.endswith(MERGED)
        else name.removeprefix(f"{run} - ")
        if " - " not in name or name.startswith(f"{run} - ")
        else None
        for name in header
    ]
