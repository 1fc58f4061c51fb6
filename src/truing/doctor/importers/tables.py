"""Scalars as a table: CSV with a step column, or a JSON object a line; also W&B's exports.

W&B exports a run's history with its own names (``run.history().to_csv()``), and a chart with a column
``RUN - METRIC`` for each run, beside the smallest and largest value of what was merged into a point.
A blank cell means that nothing was logged there.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from truing.doctor.importers.log import (
    Log,
    check_width,
    has_step,
    json_lines,
    log_of_records,
    read_text,
    short,
    text_lines,
)
from truing.errors import RecordError
from truing.utils.format import with_count

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
    return log_of_records(path.name, records, steps_counted=counted)


def read_csv(path: Path, run: str | None) -> Log:
    """Return the log of a table with a header.

    Args:
        path: of the file.
        run: the name of the run, for a chart's export with several.
    """
    table = _cells(read_text(path), path)
    if len(table) < 2:
        raise RecordError(
            f"{path} has no row", got=f"{len(table)} lines", expected="a header, and a row per step"
        )
    columns = _columns_of_run([name.strip() for name in table[0][1]], run, path)
    header, repeated = _first_of_each(columns)
    rows, notes = _without_filling(_records(path, header, table[1:]))
    return log_of_records(path.name, rows, notes=[*repeated, *notes])


def _cells(text: str, path: Path) -> list[tuple[int, list[str]]]:
    """Return the cells of each nonempty row, and its last line; the header is the first row without #.

    The most frequent separator of the header separates cells. With a semicolon, a comma is the decimal point.
    """
    lines = text_lines(text)
    start = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    separator = max(SEPARATORS, key="".join(lines[start : start + 1]).count)
    check_width("".join(lines[start : start + 1]).count(separator) + 1, f"{path}, line {start + 1},")
    rows, before = list[tuple[int, list[str]]](), start
    limit = csv.field_size_limit(max(len(text), 1))  # a cell may hold a table of answers
    try:
        reader = csv.reader(lines[start:], delimiter=separator, strict=True)
        for row in reader:
            count = start + reader.line_num
            if count - before > 1 and any(cell.count(separator) > len(row) - 2 > -1 for cell in row):
                raise csv.Error("a quoted cell holds whole rows")
            if any(cell.strip() for cell in row):
                rows.append((count, row))
            before = count
    except csv.Error as error:
        raise RecordError(
            f"{path}, line {before + 1}, does not end as a row of a table",
            got=error,
            expected="a closing quote for each opening one",
            remedy="remove the single quote, or export the table again",
        ) from error
    finally:
        csv.field_size_limit(limit)
    if separator != ";":
        return rows
    return [(count, [DECIMALS.sub(".", cell) for cell in row]) for count, row in rows]


def _first_of_each(columns: Sequence[str | None]) -> tuple[list[str | None], list[str]]:
    """Return the columns without those that repeat a name, and a note on each name with several."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(columns, 1):
        if name:
            places.setdefault(name, []).append(place)
    notes = [
        f"{len(each)} columns are named {short(name)}: column {each[0]} is read, column"
        f"{'s' * (len(each) > 2)} {', '.join(map(str, each[1:]))} left out"
        for name, each in places.items()
        if len(each) > 1
    ]
    first = {name: each[0] for name, each in places.items()}
    kept = [name if name and first[name] == place else None for place, name in enumerate(columns, 1)]
    return kept, notes


def _records(
    path: Path, header: list[str | None], rows: list[tuple[int, list[str]]]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row's place, and its cells as text, without blank ones."""
    for count, row in rows:
        if len(row) != len(header):
            raise RecordError(
                f"{path}, line {count}, has another number of cells than the header",
                got=len(row),
                expected=len(header),
                remedy="export the table again",
            )
        yield (
            f"{path}, line {count},",
            {name: text for name, text in zip(header, row, strict=True) if name and text.strip()},
        )


RETURNS = 3
"""Times that a column has a number after NaN: training does not recover from NaN so often."""


def _without_filling(
    records: Iterator[tuple[str, dict[str, str]]],
) -> tuple[list[tuple[str, dict[str, str]]], list[str]]:
    """Return records without the NaN that a program fills in where nothing was logged, and notes on it.

    A column with a single number, or with numbers after NaN again and again, is filled. In any other column
    NaN is what the trainer logged.
    """
    rows, notes = list(records), list[str]()
    for name in dict.fromkeys(name for _, row in rows for name, cell in row.items() if _is_nan(cell)):
        cells = [(where, _is_nan(row[name])) for where, row in rows if name in row]
        first = next(where for where, is_nan in cells if is_nan)
        returns = sum(before and not now for (_, before), (_, now) in pairwise(cells))
        if returns < RETURNS and sum(not is_nan for _, is_nan in cells) != 1:
            continue
        for _, row in rows:
            if _is_nan(row.get(name, "")):
                del row[name]
        filled = with_count(sum(is_nan for _, is_nan in cells), "cell")
        notes.append(
            f"{short(name)}: {filled} with NaN between numbers, read as not logged (the first: {first[:-1]})"
        )
    return rows, notes


def _is_nan(cell: str) -> bool:
    return cell.strip().lower() == "nan"


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
