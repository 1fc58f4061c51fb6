"""Rows of CSV and Parquet files."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truing.errors import DataError

LONGEST_FIELD = 2**31 - 1
"""Characters of a CSV field; Python's own limit of 131,072 is less than a long conversation has."""


def csv_rows(file: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any] | DataError]]:
    """Yield the location and the columns of each row of a CSV file, whose first line names the columns.

    A column whose cell is empty is left out.
    """
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names, line = None, 1
    try:
        for cells in reader:
            where, line = f"{file}:{line}", reader.line_num + 1
            if not cells:
                continue
            if names is None:
                names = _checked_names(file, cells)
            elif len(cells) != len(names):
                yield (
                    where,
                    DataError(
                        f"{where} has another number of cells than the first line",
                        got=len(cells),
                        expected=f"{len(names)}: {', '.join(names)}",
                        remedy="put a text with commas or line breaks in double quotes",
                    ),
                )
            else:
                yield where, {name: cell for name, cell in zip(names, cells, strict=True) if cell}
    except csv.Error as error:
        raise DataError(f"{file}:{reader.line_num} is not CSV", got=error) from error


def _checked_names(file: Path, names: list[str]) -> list[str]:
    """Return the names of the columns, each of which is one."""
    if not all(names) or len(set(names)) < len(names):
        raise DataError(
            f"the first line of {file} does not name the columns",
            got=", ".join(names),
            expected="a name for each column, separated by commas",
        )
    return names


def parquet_rows(file: Path) -> list[dict[str, Any]]:
    """Return the columns of each row of a Parquet file; a column whose value is null is left out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(file).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"data cannot be read: {file}",
            got=error,
            expected="a Parquet file",
            remedy="relative paths start at the folder that truing is run in",
        ) from error
    return [{name: value for name, value in row.items() if value is not None} for row in rows]
