"""Gathers the segments of a run in one Parquet file, a row group per step."""

import json
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq

from truing.record.files import disk_errors, move_into_place
from truing.record.reader import RunReader
from truing.record.rows import StepRow
from truing.record.segments import SCHEMA, content_digest
from truing.record.store import DIGESTS, PARQUET, ROLLOUTS, Groups, load_table


def compact(run_dir: Path) -> int:
    """Move every recorded segment into rollouts.parquet and return how many steps that holds.

    Segments go only after the new file was synced, read back equal and renamed, so a crash leaves
    each step readable in one place or in both. Compacting again adds what was recorded since.
    """
    run_dir = Path(run_dir)
    steps = RunReader(run_dir).steps()
    path = run_dir / PARQUET
    aside = path.with_name(path.name + ".tmp")
    try:
        with disk_errors(path):
            _write(run_dir, steps, aside)
            with closing(Groups(aside)) as written:
                for step in steps:
                    written.table(step)
            move_into_place(aside, path)
            for step in steps:
                (run_dir / ROLLOUTS / step.segment.file).unlink(missing_ok=True)
    finally:
        aside.unlink(missing_ok=True)
    return len(steps)


def _write(run_dir: Path, steps: Sequence[StepRow], aside: Path) -> None:
    """Write one row group per step, synced, with the digest of each."""
    digests = []
    with open(aside, "wb") as handle, closing(Groups(run_dir / PARQUET)) as before:
        # no dictionaries: they take all NaN of a page for one, and so change bits
        with pq.ParquetWriter(
            handle, SCHEMA, compression="zstd", use_dictionary=False, write_page_checksum=True
        ) as writer:
            for step in steps:
                table = load_table(run_dir, step, before)
                digests.append((step.segment.sha256, content_digest(table)))
                writer.write_table(table)
            writer.add_key_value_metadata({DIGESTS: json.dumps(digests)})
        handle.flush()
        os.fsync(handle.fileno())
