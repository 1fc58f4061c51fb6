"""The rows of a data file, each validated by a pydantic model."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from truing.envs.data.rows import Row, parse_spec, read_rows
from truing.envs.data.usable_rows import UsableRows, row_name, usable_rows
from truing.errors import DataError

Record = TypeVar("Record", bound=BaseModel)


def read_records(path: Path, model: type[Record]) -> list[Record]:
    """Return all rows of a file as records.

    Raises:
        DataError: The file is missing or unreadable, or a row is invalid.
    """
    return [record_of(row, model) for row in read_rows(parse_spec(str(path)))]


def usable_records(path: Path, model: type[Record], key: Callable[[Record], object]) -> UsableRows[Record]:
    """Return the valid rows of a file, unique by key, and notes on the others.

    Raises:
        DataError: The file is missing or unreadable, or no row is valid.
    """
    return usable_rows(read_rows(parse_spec(str(path))), lambda row: record_of(row, model), row_name, key)


def record_of(row: Row, model: type[Record]) -> Record:
    """Return a row as a record."""
    try:
        return model.model_validate(row.values)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        raise DataError(
            f"field {field!r} of {row.where} cannot be used", got=problem["input"], expected=problem["msg"]
        ) from error
