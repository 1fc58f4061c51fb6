"""Gathers the segments of a run in one Parquet file, a row group per step."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from truing.errors import RecordError
from truing.record.files import disk_errors, move_into_place
from truing.record.reader import RunReader
from truing.record.rows import StepRow
from truing.record.segments import SCHEMA, encode, table_of
from truing.record.store import GROUPS, PARQUET, ROLLOUTS, load_rows, read_group


def compact(run_dir: Path) -> int:
    """Move every recorded segment into rollouts.parquet and return how many steps that holds.

    Segments go only after the new file was read back equal, synced and renamed, so a crash leaves
    each step readable in one place or in both. Compacting again adds what was recorded since.
    """
    run_dir = Path(run_dir)
    steps = RunReader(run_dir).steps()
    path = run_dir / PARQUET
    aside = path.with_name(path.name + ".tmp")
    try:
        with disk_errors(path):
            _write(run_dir, steps, aside)
            _verify(run_dir, steps, aside)
            move_into_place(aside, path)
            for step in steps:
                (run_dir / ROLLOUTS / step.segment.file).unlink(missing_ok=True)
    finally:
        aside.unlink(missing_ok=True)
    return len(steps)


def _write(run_dir: Path, steps: Sequence[StepRow], aside: Path) -> None:
    """Write one row group per step, synced; the metadata names the segment that each one was."""
    schema = SCHEMA.with_metadata({GROUPS: json.dumps([step.segment.sha256 for step in steps])})
    with open(aside, "wb") as handle:
        # no dictionaries: they take all NaN of a page for one, and so change bits
        with pq.ParquetWriter(
            handle, schema, compression="zstd", use_dictionary=False, write_page_checksum=True
        ) as writer:
            for step in steps:
                writer.write_table(table_of(step.stage, step.step, load_rows(run_dir, step)).cast(schema))
        handle.flush()
        os.fsync(handle.fileno())


def _verify(run_dir: Path, steps: Sequence[StepRow], aside: Path) -> None:
    """Raise unless every step reads the same from the new file, bit for bit."""
    for step in steps:
        before = encode(step.stage, step.step, load_rows(run_dir, step))
        if encode(step.stage, step.step, read_group(aside, step)) != before:
            raise RecordError(
                f"step {step.step} of {step.stage} reads differently after compaction",
                expected="the same rows, bit for bit",
                remedy="nothing was removed; report this as a bug of Truing",
            )
