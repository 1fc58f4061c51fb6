"""The index of the compacted file: the location of each step, stored in the file's metadata."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from truing.errors import RecordError
from truing.record.step_line import StepLine

METADATA_KEY = b"truing.steps"
"""The entry of the Parquet metadata: an Arrow stream, in base64 because other readers expect text there."""

COLUMNS = pa.schema(
    {
        "stage": pa.string(),
        "step": pa.int64(),
        "sha256": pa.binary(32),  # of its former segment
        "digest": pa.binary(32),  # of the content of its rows
        "group": pa.int32(),
        "start": pa.int64(),  # its first row in the group
        "rows": pa.int64(),
    }
)


class SegmentRef(NamedTuple):
    """The location of a step's rows, from steps.jsonl."""

    stage: str
    step: int
    file: str
    rows: int
    sha256: str

    @classmethod
    def from_step(cls, step: StepLine) -> "SegmentRef":
        """Return the location that a line names."""
        return cls(step.stage, step.step, step.segment.file, step.segment.rows, step.segment.sha256)


class IndexEntry(NamedTuple):
    """The rows of one step in the compacted file."""

    group: int
    start: int
    rows: int
    digest: bytes


@dataclass(frozen=True)
class Index:
    """The steps of a compacted file, in the order of their rows."""

    table: pa.Table

    def find(self, sha256: Sequence[str]) -> np.ndarray:
        """Return the table row of each segment, [N]; −1 for an unknown one."""
        rows = self._rows
        return np.array(
            [rows.get(str(each), -1) for each in sha256], np.int64
        )  # a line of a stranger may hold any type

    def column(self, name: str) -> np.ndarray:
        """Return a numeric column."""
        return self.table[name].to_numpy()

    def entry(self, sha256: str) -> IndexEntry:
        """Return the entry of a segment; raise KeyError for an unknown one."""
        row = self._rows[sha256]
        group, start, rows, digest = (self.table[name][row].as_py() for name in IndexEntry._fields)
        return IndexEntry(group, start, rows, digest)

    def segments(self) -> set[str]:
        """Return the SHA-256 of every segment in the file."""
        return set(self._rows)

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        return {name.hex(): row for row, name in enumerate(self.table["sha256"].to_pylist())}


def encode_index(
    refs: Sequence[SegmentRef], groups: Sequence[int], starts: Sequence[int], digests: Sequence[str]
) -> str:
    """Return the index as text for the metadata."""
    columns = {
        "stage": [each.stage for each in refs],
        "step": [each.step for each in refs],
        "sha256": [bytes.fromhex(each.sha256) for each in refs],
        "digest": [bytes.fromhex(each) for each in digests],
        "group": groups,
        "start": starts,
        "rows": [each.rows for each in refs],
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, COLUMNS) as writer:
        writer.write_table(pa.table(columns, COLUMNS))
    return base64.b64encode(sink.getvalue()).decode()


def decode_index(metadata: Mapping[bytes, bytes] | None, name: str) -> Index:
    """Return the index that ``encode_index`` made; raise a RecordError without one."""
    try:
        table = pa.ipc.open_stream(base64.b64decode((metadata or {})[METADATA_KEY], validate=True)).read_all()
        table.validate(full=True)
        if not table.schema.equals(COLUMNS):
            raise ValueError(f"columns {', '.join(table.schema.names)}")
    except (KeyError, ValueError, pa.ArrowException, OSError) as error:
        raise RecordError(
            f"{name} does not say where the rows of each step are",
            got=repr(error),
            expected=f"the entry {METADATA_KEY.decode()} that this version of truing writes",
            remedy="read it by the version that wrote it, or restore the file from a copy",
        ) from error
    return Index(table)
