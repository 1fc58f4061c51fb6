"""Where the rows of a step lie: in a segment, or, once compacted, in a row group of one Parquet file."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from truing.errors import RecordError
from truing.record.files import sha256
from truing.record.rows import SampleRow, StepRow
from truing.record.segments import content_digest, decode, rows_of

RUN, RECIPE, STEPS, EVENTS = "run.json", "recipe.toml", "steps.jsonl", "events.jsonl"
ROLLOUTS, PARQUET = "rollouts", "rollouts.parquet"
DIGESTS = b"truing.digests"
"""Parquet metadata, JSON: for each row group, SHA-256 of the segment that it was, and its content digest."""


def load_rows(run_dir: Path, step: StepRow) -> tuple[SampleRow, ...]:
    """The rows of a step, verified, from wherever they lie."""
    path = run_dir / ROLLOUTS / step.segment.file
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return read_group(run_dir / PARQUET, step)
    got = sha256(data)
    if got != step.segment.sha256:
        raise RecordError(
            f"segment {path} is damaged",
            got=f"SHA-256 {got}",
            expected=step.segment.sha256,
            remedy="restore it from a copy; every other step can still be read",
        )
    return decode(data)


def read_group(path: Path, step: StepRow) -> tuple[SampleRow, ...]:
    """The rows of a step, verified, from the Parquet file at ``path``."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            segments, digests = zip(*json.loads(file.metadata.metadata[DIGESTS]), strict=True)
            group = segments.index(step.segment.sha256)
            table = file.read_row_group(group)
        whole = content_digest(table) == digests[group]
    except FileNotFoundError as error:
        raise RecordError(
            f"segment {step.segment.file} of step {step.step} is missing",
            expected=f"{ROLLOUTS}/ or {path.name}",
        ) from error
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise _damaged_group(path, step, error) from error
    if not whole:
        raise _damaged_group(path, step, "rows of another digest")
    return rows_of(table)


def _damaged_group(path: Path, step: StepRow, got: object) -> RecordError:
    return RecordError(
        f"segment {step.segment.file} cannot be read from {path}",
        got=got,
        remedy="restore the file from a copy",
    )
