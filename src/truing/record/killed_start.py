"""What is left of a run that was killed while it started, before ``run.json``."""

import shutil
from pathlib import Path

from truing.errors import RecordError
from truing.record.reader import has_writer
from truing.record.store import ANSWERS, EVENTS, RECIPE, ROLLOUTS, RUN, STEPS, TOKENIZER
from truing.utils.atomic_files import disk_errors

WRITTEN_FIRST = {
    STEPS,
    EVENTS,
    ROLLOUTS,
    TOKENIZER,
    *(f"{name}{end}" for name in (RECIPE, ANSWERS, RUN) for end in ("", ".tmp")),
} - {RUN}
"""What a run directory may hold before ``run.json``, which begins the record."""


def remove_killed_start(run_dir: Path) -> bool:
    """Remove the directory of a run that was killed before its record began; return whether it was one.

    A directory with anything else in it, such as one of a mistyped ``--out``, stays as it is.

    Raises:
        RecordError: Another process is starting a run there, or the directory cannot be removed.
    """
    names = {path.name for path in run_dir.iterdir()} if run_dir.is_dir() else set[str]()
    if ROLLOUTS not in names or names - WRITTEN_FIRST or _has_records(run_dir):
        return False
    if has_writer(run_dir):
        raise RecordError(
            f"another process is starting a run in {run_dir}", remedy="wait for it, or stop it first"
        )
    with disk_errors(run_dir):
        shutil.rmtree(run_dir)
    return True


def _has_records(run_dir: Path) -> bool:
    """Return whether a file of the record has any content."""
    files = (run_dir / STEPS, run_dir / EVENTS)
    return any(file.exists() and file.stat().st_size for file in files) or any((run_dir / ROLLOUTS).iterdir())
