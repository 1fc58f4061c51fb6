"""Loads the rows of a step from its segment or from the compacted Parquet file."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from truing.errors import RecordError
from truing.record.digest import content_digest
from truing.record.index import Index, SegmentRef, decode_index
from truing.record.schema import SCHEMA
from truing.record.segments import decode, step_table_of
from truing.record.step_line import StepLine
from truing.types.step_table import StepTable
from truing.utils.atomic_files import sha256
from truing.utils.regular_files import read_regular

RUN, RECIPE, STEPS, EVENTS = "run.json", "recipe.toml", "steps.jsonl", "events.jsonl"
ANSWERS = "answers.json"
"""The right answers of tasks, by task, as text: people compare them with the policy's."""

ROLLOUTS, PARQUET = "rollouts", "rollouts.parquet"
ABANDONED = "abandoned"
"""Folder of run directories with steps that were undone."""

TOKENIZER = "tokenizer"
"""Folder with the tokenizer, so that tokens are readable on any machine."""

READ_ERRORS = (OSError, pa.ArrowException, LookupError, TypeError, ValueError)
"""Errors that a damaged or malicious file may raise."""

UNREADABLE_REMEDY = "restore the file from a copy, or read the run with the version of Truing that wrote it"

METADATA_LIMIT = 2**31 - 1
"""Bytes of one entry of the metadata: the index of 10^5 steps has 14 MB, Arrow's default limit is 100."""


class CompactedFile:
    """The row groups of a Parquet file, for any number of threads.

    It is opened again when the file changes. The last row group stays in memory, so reading steps in order
    reads each group once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: pq.ParquetFile | None = None
        self._state: tuple[int, ...] = ()
        self._index = Index(pa.table({}))
        self._last: tuple[int, pa.Table] | None = None
        self._lock = Lock()

    def table(self, ref: SegmentRef) -> pa.Table:
        """Return the rows of a step, verified."""
        try:
            with self._lock:
                entry = self._open().entry(ref.sha256)
                table = self._read_group(entry.group).slice(entry.start, entry.rows)
            matches = content_digest(table) == entry.digest.hex()
        except FileNotFoundError as error:
            raise RecordError(
                f"segment {ref.file} of step {ref.step} is missing",
                expected=f"{ROLLOUTS}/ or {self.path.name}",
            ) from error
        except READ_ERRORS as error:
            raise _damaged_group(self.path, ref, error) from error
        if not matches:
            raise _damaged_group(self.path, ref, "rows of another digest")
        return table

    def columns(self, group: int, names: Sequence[str]) -> pa.Table:
        """Return some columns of a row group; page checksums are verified, content digests are not."""
        with self._lock:
            self._open()
            assert self._file
            return self._file.read_row_group(group, columns=list(names), use_threads=False)

    def index(self) -> Index | None:
        """Return the index; None if the run is not compacted."""
        try:
            with self._lock:
                return self._open()
        except FileNotFoundError:
            return None
        except READ_ERRORS as error:
            raise RecordError(f"{self.path} cannot be read", got=error, remedy=UNREADABLE_REMEDY) from error

    def count_unlisted(self, refs: Sequence[SegmentRef]) -> int:
        """Return the number of steps in the file whose lines are lost; 0 if the run is not compacted."""
        index = self.index()
        if index is None:
            return 0
        return len(index.segments() - {ref.sha256 for ref in refs})

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close_file()

    def _open(self) -> Index:
        """Return the index of the current file."""
        stat = os.stat(self.path)
        state = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if state != self._state:
            self._close_file()
            file = pq.ParquetFile(
                self.path, page_checksum_verification=True, thrift_string_size_limit=METADATA_LIMIT
            )
            self._index = decode_index(file.metadata.metadata, str(self.path))
            if not file.schema_arrow.equals(SCHEMA):
                raise ValueError("its columns are those of another version of Truing, or of no run")
            self._file, self._state = file, state
        return self._index

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._state, self._last = None, (), None

    def _read_group(self, group: int) -> pa.Table:
        if self._last is None or self._last[0] != group:
            assert self._file
            self._last = None  # at most one group in memory
            self._last = group, self._file.read_row_group(group)
        return self._last[1]


def load_step(run_dir: Path, step: StepLine, compacted: CompactedFile | None = None) -> StepTable:
    """Return the step of a line, verified, from its segment or the compacted file."""
    table = load_table(run_dir, SegmentRef.from_step(step), compacted or CompactedFile(run_dir / PARQUET))
    try:
        return step_table_of(table, step)
    except READ_ERRORS as error:
        raise RecordError(
            f"the rows of step {step.step} of stage {step.stage} say what cannot be", got=repr(error)
        ) from error


def load_table(run_dir: Path, ref: SegmentRef, compacted: CompactedFile) -> pa.Table:
    """Return the same as a table."""
    path = segment_path(run_dir, ref.file)
    try:
        table = _read_segment(path, ref.sha256)
    except FileNotFoundError:
        table = compacted.table(ref)
    except READ_ERRORS as error:
        raise RecordError(f"segment {path} cannot be read", got=error, remedy=UNREADABLE_REMEDY) from error
    if table.num_rows != ref.rows:
        raise RecordError(
            f"segment {path} and its line are not of one step",
            got=f"{table.num_rows} rows",
            expected=f"{ref.rows}",
        )
    return table


def segment_path(run_dir: Path, name: object) -> Path:
    """Return the path of a segment that a line names; the only conversion of such a name to a path.

    A run directory may come from a stranger, and these files are read, copied and removed: no name and no
    link may lead out of the directory.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+\.arrow", name):
        raise RecordError(
            f"a line of {run_dir / STEPS} names a segment that cannot be one",
            got=repr(name),
            expected="the plain name of a file, as grpo-000012.arrow",
        )
    return _check_inside(run_dir, rollouts_dir(run_dir) / name)


def rollouts_dir(run_dir: Path) -> Path:
    """Return the folder of segments; raise if it is a link out of the run directory."""
    return _check_inside(run_dir, run_dir / ROLLOUTS)


def _check_inside(run_dir: Path, path: Path) -> Path:
    target = Path(os.path.realpath(path))  # of a link to itself: the link
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(run_dir)):
        raise RecordError(f"{path} is a link that leads out of the run directory", got=target)
    return path


def _read_segment(path: Path, expected: str) -> pa.Table:
    data = read_regular(path, most=None)
    digest = sha256(data)
    if digest != expected:
        raise RecordError(
            f"segment {path} is damaged",
            got=f"SHA-256 {digest}",
            expected=expected,
            remedy="restore it from a copy; every other step can still be read",
        )
    return decode(data)


def _damaged_group(path: Path, ref: SegmentRef, actual: object) -> RecordError:
    return RecordError(
        f"segment {ref.file} cannot be read from {path}",
        got=actual,
        remedy=UNREADABLE_REMEDY,
    )
