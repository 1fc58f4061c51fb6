"""Where the rows of a step lie: in a segment, or, once compacted, in a row group of one Parquet file."""

import json
from collections.abc import Sequence
from contextlib import closing
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


class Groups:
    """The row groups of a Parquet file. It is opened once: its footer tells of every column of every step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: pq.ParquetFile | None = None
        self._index: dict[str, tuple[int, str]] = {}

    def table(self, step: StepRow) -> pa.Table:
        """The rows of a step, verified."""
        try:
            if self._file is None:
                self._open()
            group, digest = self._index[step.segment.sha256]
            table = self._file.read_row_group(group)
            whole = content_digest(table) == digest
        except FileNotFoundError as error:
            raise RecordError(
                f"segment {step.segment.file} of step {step.step} is missing",
                expected=f"{ROLLOUTS}/ or {self.path.name}",
            ) from error
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise _damaged_group(self.path, step, error) from error
        if not whole:
            raise _damaged_group(self.path, step, "rows of another digest")
        return table

    def lost(self, steps: Sequence[StepRow]) -> int:
        """How many row groups no step has: their lines are lost. 0 where nothing was compacted yet."""
        if not self.path.exists():
            return 0
        try:
            self._open()
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise RecordError(
                f"{self.path} cannot be read", got=error, remedy="restore the file from a copy"
            ) from error
        return len(self._index.keys() - {step.segment.sha256 for step in steps})

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        self._file = pq.ParquetFile(self.path, page_checksum_verification=True)
        groups = enumerate(json.loads(self._file.metadata.metadata[DIGESTS]))
        self._index = {segment: (group, digest) for group, (segment, digest) in groups}


def load_rows(run_dir: Path, step: StepRow) -> tuple[SampleRow, ...]:
    """The rows of a step, verified, from wherever they lie."""
    with closing(Groups(run_dir / PARQUET)) as groups:
        return rows_of(load_table(run_dir, step, groups))


def load_table(run_dir: Path, step: StepRow, compacted: Groups) -> pa.Table:
    """The same as a table, from the step's segment or from the groups of an earlier compaction."""
    path = run_dir / ROLLOUTS / step.segment.file
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return compacted.table(step)
    got = sha256(data)
    if got != step.segment.sha256:
        raise RecordError(
            f"segment {path} is damaged",
            got=f"SHA-256 {got}",
            expected=step.segment.sha256,
            remedy="restore it from a copy; every other step can still be read",
        )
    return decode(data)


def _damaged_group(path: Path, step: StepRow, got: object) -> RecordError:
    return RecordError(
        f"segment {step.segment.file} cannot be read from {path}",
        got=got,
        remedy="restore the file from a copy",
    )
