"""Restarts of a run after a rank was lost: from which checkpoint, and when no more."""

from collections.abc import Callable
from pathlib import Path
from shlex import quote

from truing.distributed.ending import Ending
from truing.learner.checkpoint import find_newest
from truing.record.killed_start import remove_killed_start

Start = Callable[[bool, bool], Ending]
"""Starts the ranks of a run, whether it is resumed and whether after a loss; returns how they ended."""


def run_with_restarts(
    start: Start, run: Path, *, resume: bool, restarts: int, print_line: Callable[[str], None]
) -> int:
    """Start the ranks of a run, and again after a rank was lost; return the exit code.

    An error that a rank raised ends the run. So do losses with no new checkpoint between them: what the
    run does there, such as a step that needs too much memory, would be repeated.

    Args:
        start: called for each start.
        run: the run directory.
        resume: whether the first start resumes.
        restarts: at most this many.
        print_line: Prints a line.
    """
    is_own = resume or _is_unused(run)
    resume = resume and not remove_killed_start(run)
    before: str | None = None  # the newest checkpoint at the loss before; "" is none
    for count in range(1, restarts + 2):
        ending = start(resume, count > 1)
        if not ending.lost:
            if ending.failed:
                print_line(ending.failed)
            return ending.exit_code
        newest = _newest_name(run)
        if count > restarts or newest == before:
            print_line(f"{ending.lost}; {_why_it_ends(run, restarts, newest if newest == before else None)}")
            return ending.exit_code
        if is_own:
            resume = not _is_unused(run) and not remove_killed_start(run)
        position = f"from checkpoint {newest}" if newest else "from the start: there is no checkpoint yet"
        print_line(f"{ending.lost}. Restart {count} of {restarts}, {position}")
        before = newest
    raise AssertionError("unreachable: the last restart returns")


def _is_unused(run: Path) -> bool:
    """Return whether a run directory is empty or not made."""
    return not run.exists() or not any(run.iterdir())


def _newest_name(run: Path) -> str:
    """Return the name of the newest checkpoint; "" before the first."""
    newest = find_newest(run / "checkpoints")
    return newest.name if newest else ""


def _why_it_ends(run: Path, restarts: int, repeated: str | None) -> str:
    """Return why there is no further restart; ``repeated`` is a checkpoint without a newer one, or ""."""
    remedy = f"Go on with --out {quote(str(run))} --resume"
    if repeated is not None:
        place = f"a checkpoint after {repeated}" if repeated else "the first checkpoint"
        return f"the loss before was also without {place}, so the run ends. {remedy}"
    return f"all restarts are used (trainer.restarts = {restarts}), so the run ends. {remedy}"
