"""One SHA-256 of the content of a step's rows, equal for every file format."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def content_digest(table: pa.Table) -> str:
    """Return the SHA-256 of the content of a table, including the bits of NaNs."""
    return content_digests(table, [table.num_rows])[0]


def content_digests(table: pa.Table, rows: Sequence[int]) -> list[str]:
    """Return the digest of each step of a table with ``rows[i]`` rows of step i.

    Columns are split once for all steps, because Arrow is slower on many small tables than hashing.
    """
    at = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
    streams = [
        (values.data.cast("B"), (bounds * values.itemsize).tolist())
        for column in table.columns
        for values, bounds in _leaves(column.combine_chunks(), at)
        if len(values)
    ]
    digests = [hashlib.sha256(b"%d" % count) for count in rows]
    for values, bounds in streams:
        for digest, start, end in zip(digests, bounds, bounds[1:], strict=False):
            digest.update(values[start:end])
    return [digest.hexdigest() for digest in digests]


def _leaves(array: pa.Array, at: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the value arrays of a column, each with the offsets of the steps.

    For ``[[7], null, [8, 9]]`` these are the lengths ``[1, -1, 2]``, then ``[7, 8, 9]``.
    """
    if pa.types.is_struct(array.type):
        yield _nulls(array, at)
        for child in array.flatten():
            yield from _leaves(child, at)
    elif pa.types.is_list(array.type):
        lengths = _numpy(_fill_null(pc.list_value_length(array), -1))
        yield lengths, at
        yield from _leaves(array.flatten(), _offsets(lengths)[at])
    elif pa.types.is_string(array.type):
        lengths = _numpy(_fill_null(pc.binary_length(array), -1))
        yield lengths, at
        list_array = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array.fill_null(""))
        yield np.frombuffer(pc.binary_join(list_array, "")[0].as_buffer(), np.uint8), _offsets(lengths)[at]
    else:
        yield _nulls(array, at)
        yield _numpy(_fill_null(array, 0)), at


def _nulls(array: pa.Array, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of nulls, counted from the start of their step; empty arrays without nulls."""
    if not array.null_count:
        return np.zeros(0, np.int64), np.zeros_like(at)
    nulls = np.flatnonzero(_numpy(array.is_null()))
    return nulls - at[np.searchsorted(at, nulls, "right") - 1], np.searchsorted(nulls, at)


def _fill_null(array: pa.Array, number: int) -> pa.Array:
    """Return the array with a number in place of nulls; the check first is cheaper than the call."""
    return array.fill_null(pa.scalar(number, pa.int8()).cast(array.type)) if array.null_count else array


def _offsets(lengths: np.ndarray) -> np.ndarray:
    """Return the start offset of each length, and the end of the last; −1 (null) counts as empty."""
    return np.concatenate([[0], np.cumsum(np.maximum(lengths, 0), dtype=np.int64)])


def _numpy(array: pa.Array) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False)
