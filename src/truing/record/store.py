"""Where the rows of a step lie: in a segment, or, once compacted, in a row group of one Parquet file."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from truing.errors import RecordError
from truing.record.files import sha256
from truing.record.rows import SampleRow, StepRow
from truing.record.segments import decode, rows_of

RUN, RECIPE, STEPS, EVENTS = "run.json", "recipe.toml", "steps.jsonl", "events.jsonl"
ROLLOUTS, PARQUET = "rollouts", "rollouts.parquet"
GROUPS = b"segments"  # Parquet metadata: the SHA-256 of the segment that each row group was


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
    """The rows of a step from the Parquet file at ``path``; the checksum of every page is verified."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            groups = json.loads(file.schema_arrow.metadata[GROUPS])
            table = file.read_row_group(groups.index(step.segment.sha256))
    except FileNotFoundError as error:
        raise RecordError(
            f"segment {step.segment.file} of step {step.step} is missing",
            expected=f"{ROLLOUTS}/ or {path.name}",
        ) from error
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise RecordError(
            f"segment {step.segment.file} cannot be read from {path}",
            got=str(error),
            remedy="restore the file from a copy",
        ) from error
    got = (table.num_rows, set(table["stage"].to_pylist()), set(table["step"].to_pylist()))
    if got[0] != step.segment.rows or (got[0] and got[1:] != ({step.stage}, {step.step})):
        raise RecordError(f"{path} holds other rows than step {step.step} of {step.stage} recorded", got=got)
    return rows_of(table)
