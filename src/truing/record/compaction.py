"""Collects the segments of a run in one Parquet file, in which consecutive steps share a row group."""

import os
from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from truing.record.digest import content_digests
from truing.record.index import METADATA_KEY, SegmentRef, encode_index
from truing.record.reader import RunReader
from truing.record.schema import SCHEMA
from truing.record.store import PARQUET, CompactedFile, load_table, segment_path
from truing.utils.atomic_files import disk_errors, move_into_place, remove_temporary

ROW_GROUP_BYTES = 8 * 2**20
"""Bytes of Arrow data per row group. Reading one step reads its whole group; every reader first
reads the footer, which describes every column of every group."""

DICTIONARY_COLUMNS = [
    "stage",
    "group_id",
    "task_id",
    "family",
    "prompt_hash",
    "old_source",
    "status",
    "ended_by",
    "error",
    "sampling_params",
    "turns.list.element.finish_reason",
    "turns.list.element.weight_digest",
]
"""Text columns with few values per group. Never numbers: a dictionary merges all NaN of a page."""


def compact(run_dir: Path) -> int:
    """Move every recorded segment into rollouts.parquet and return its number of steps.

    Segments are deleted only after the new file is synced, read back and renamed, so after a crash each step
    is readable in one ref or in both. Compacting again adds the steps recorded since.
    """
    run_dir = Path(run_dir)
    refs = [SegmentRef.from_step(row) for row in RunReader(run_dir).iter_steps()]
    segments = [segment_path(run_dir, ref.file) for ref in refs]
    path = run_dir / PARQUET
    temporary = path.with_name(path.name + ".tmp")
    try:
        with disk_errors(path):
            write_steps(run_dir, refs, temporary)
            with closing(CompactedFile(temporary)) as compacted:
                for ref in refs:
                    compacted.table(ref)
            move_into_place(temporary, path)
            for segment in segments:
                segment.unlink(missing_ok=True)
    finally:
        remove_temporary(temporary)
    return len(refs)


def write_steps(run_dir: Path, refs: Sequence[SegmentRef], path: Path) -> None:
    """Write the rows of some steps of a run as a compacted file, synced, with the digest of each."""
    with open(path, "wb") as handle, closing(CompactedFile(run_dir / PARQUET)) as before:
        with closing(RowGroupWriter(handle)) as writer:
            for ref in refs:
                writer.add([ref], load_table(run_dir, ref, before))
        handle.flush()
        os.fsync(handle.fileno())


class RowGroupWriter:
    """Writes a compacted file: the rows of steps in order, and their index."""

    def __init__(self, handle: BinaryIO) -> None:
        self._file = pq.ParquetWriter(
            handle,
            SCHEMA,
            compression="zstd",
            use_dictionary=cast("Any", DICTIONARY_COLUMNS),  # pyright reads bool from the default
            write_page_checksum=True,
            write_statistics=False,  # unused, and half of the footer
        )
        self._refs: list[SegmentRef] = []
        self._groups: list[int] = []
        self._starts: list[int] = []
        self._digests: list[str] = []
        self._pending: list[tuple[Sequence[SegmentRef], pa.Table]] = []
        self._bytes = 0

    def add(self, refs: Sequence[SegmentRef], table: pa.Table) -> None:
        """Add steps that share one group; ``table`` holds their rows in order."""
        self._pending.append((refs, table))
        self._bytes += table.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Write the last group and the index."""
        if self._pending:
            self._write_group()
        text = encode_index(self._refs, self._groups, self._starts, self._digests)
        self._file.add_key_value_metadata({METADATA_KEY: text})
        self._file.close()

    def _write_group(self) -> None:
        refs = [ref for each, _ in self._pending for ref in each]
        rows = [ref.rows for ref in refs]
        table = pa.concat_tables([table for _, table in self._pending]).combine_chunks()
        group = self._groups[-1] + 1 if self._groups else 0
        self._refs += refs
        self._groups += [group] * len(refs)
        self._starts += list(accumulate(rows[:-1], initial=0))
        self._digests += content_digests(table, rows)
        self._file.write_table(table, row_group_size=max(1, table.num_rows))
        self._pending, self._bytes = [], 0
