"""Sources of rows: a spec such as ``hub/id,config,split[:100]`` or ``folder[:100]``, and its rows."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truing.envs.conversations.place import check_encodable
from truing.envs.data.tables import csv_rows, parquet_rows
from truing.errors import DataError
from truing.utils.parse import parse_json
from truing.utils.regular_files import read_regular_text

SPEC_FORMS = (
    "a .jsonl, .json, .csv or .parquet file, a folder of .jsonl files, or hub/id,config,split; each may end"
    " in [:100]"
)

_SLICED = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<slice>[^\[\]]*)\])?")
_SLICE = re.compile(r"(\d*):(\d*)")
_HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class DataSpec:
    """A parsed spec: a local path, or a config and split of a data set on the hub."""

    text: str
    name: str  # a path, or a hub id
    config: str | None  # None for a path
    split: str | None  # None for a path
    start: int
    stop: int | None  # None is the end


@dataclass(frozen=True)
class Row:
    """One row as read, and its location."""

    where: str
    read: Mapping[str, Any] | DataError  # why it cannot be read, where it cannot

    @property
    def values(self) -> Mapping[str, Any]:
        """Return the fields of the row.

        Raises:
            DataError: It is not a JSON object.
        """
        if isinstance(self.read, DataError):
            raise self.read
        return self.read


def parse_spec(text: str) -> DataSpec:
    """Parse a spec, without reading anything.

    Two commas after something like ``owner/name`` make it a data set on the hub; all else is a path.
    A slice counts rows from 0 in the order they are stored, and its end is not included.

    >>> spec = parse_spec("bdsaglam/musique-mini,answerable,train[:100]")
    >>> spec.name, spec.config, spec.split, spec.start, spec.stop
    ('bdsaglam/musique-mini', 'answerable', 'train', 0, 100)

    Raises:
        DataError: The text has another form, or the slice is not two ascending whole numbers.
    """
    match = _SLICED.fullmatch(text.strip())
    if match is None:
        raise DataError("a data spec cannot be read", got=repr(text), expected=SPEC_FORMS)
    start, stop = (0, None) if match["slice"] is None else _parse_slice(text, match["slice"])
    parts = [part.strip() for part in match["name"].split(",")]
    if len(parts) != 3 or not _HUB_ID.fullmatch(parts[0]):
        return DataSpec(text, match["name"].strip(), None, None, start, stop)
    if not all(parts):
        raise DataError("a data spec lacks its config or split", got=repr(text), expected=SPEC_FORMS)
    name, config, split = parts
    return DataSpec(text, name, config, split, start, stop)


def read_rows(spec: DataSpec) -> list[Row]:
    """Return the rows of a spec; a row that is not a JSON object raises when its fields are read.

    Raises:
        DataError: They are missing or unreadable, there are none, or fewer than the slice asks for.
    """
    if spec.config is None:
        rows = list(_local_rows(spec))
        return [rows[i] for i in _chosen(spec, len(rows))]
    stored = _load_hub(spec)
    place = f"{spec.name},{spec.config},{spec.split}"
    return [Row(f"{place}[{i}]", stored[i]) for i in _chosen(spec, len(stored))]


def _chosen(spec: DataSpec, count: int) -> range:
    """Return the indices of a spec's rows among ``count`` stored ones."""
    if count == 0:
        raise DataError("a data set is empty", got=spec.text, expected="at least one row")
    if max(spec.start + 1, spec.stop or 0) > count:
        raise DataError(
            "a slice asks for more rows than there are", got=spec.text, expected=f"{count} rows at most"
        )
    return range(count)[spec.start : spec.stop]


def _parse_slice(text: str, inside: str) -> tuple[int, int | None]:
    """Return the two ends of ``[start:stop]``."""
    expected = "[start:stop] in whole rows with start < stop, such as [:100]"
    match = _SLICE.fullmatch(inside.strip())
    if match is None:
        raise DataError("a data spec has a slice that cannot be read", got=repr(text), expected=expected)
    start, stop = int(match[1] or 0), int(match[2]) if match[2] else None
    if stop is not None and start >= stop:
        raise DataError("a data spec has an empty slice", got=repr(text), expected=expected)
    return start, stop


def _local_rows(spec: DataSpec) -> Iterator[Row]:
    """Return all rows of a file, or of the .jsonl files of a folder in the order of their names."""
    path = Path(spec.name).expanduser()
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise DataError("a data folder holds no .jsonl file", got=path, expected=SPEC_FORMS)
    for file in files:
        if file.suffix == ".parquet":
            yield from (Row(f"{file}[{i}]", values) for i, values in enumerate(parquet_rows(file)))
            continue
        try:
            text = read_regular_text(file, "utf-8-sig" if file.suffix == ".csv" else "utf-8", most=None)
        except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a path with a null byte
            raise DataError(
                f"data cannot be read: {file}",
                got=error,
                expected=SPEC_FORMS,
                remedy="relative paths start at the folder that truing is run in",
            ) from error
        if file.suffix == ".csv":
            yield from (Row(where, read) for where, read in csv_rows(file, text))
        else:
            yield from _parse_rows(file, text)


def _parse_rows(file: Path, text: str) -> Iterator[Row]:
    """Return the rows of one file: one JSON object per line, or (.json) one list of objects."""
    if file.suffix == ".json":
        rows = _parse_json(text, str(file))
        if isinstance(rows, DataError):
            raise rows
        if not isinstance(rows, list):
            raise DataError(
                f"{file} is not a JSON list", got=type(rows).__name__, expected="a list of objects"
            )
        rows_by_place: Sequence[tuple[str, Any]] = [(f"{file}[{i}]", row) for i, row in enumerate(rows)]
    else:
        # only "\n" ends a line of JSON: a string may contain U+2028
        lines = [(f"{file}:{i}", line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]
        rows_by_place = [(where, _parse_json(line, where)) for where, line in lines]
    for where, values in rows_by_place:
        yield Row(where, _checked(values, where))


def _checked(values: Any, where: str) -> Mapping[str, Any] | DataError:
    """Return the fields of a row, or why they cannot be used."""
    if isinstance(values, DataError):
        return values
    if not isinstance(values, dict):
        return DataError(
            f"{where} is not a JSON object", got=type(values).__name__, expected="an object with fields"
        )
    try:
        check_encodable(values, where)
    except DataError as error:
        return error
    return values


def _parse_json(text: str, where: str) -> Any:
    """Return parsed JSON, or an error with the location of the fault."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        return DataError(f"{where} is not JSON", got=error, expected="one JSON object a line, or one list")


def _load_hub(spec: DataSpec) -> Any:
    """Return a split of a data set on the hub, or of its copy in the cache of ``datasets``: rows by index."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DataError(
            f"{spec.text!r} is on the Hugging Face hub, and the package `datasets` is not installed",
            remedy="pip install truing[hub], or use a local file or folder",
        ) from error
    try:
        return load_dataset(spec.name, spec.config, split=spec.split)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{spec.text!r} cannot be loaded from the Hugging Face hub",
            got=f"{type(error).__name__}: {error}",
            expected="a data set with this config and split, reachable or in the cache",
            remedy="on a machine without network, download it elsewhere and use the file or folder",
        ) from error
