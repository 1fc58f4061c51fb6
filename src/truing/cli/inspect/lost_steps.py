"""A warning for commands that read what is left of a run."""

from pathlib import Path

import typer

from truing.errors import RecordError
from truing.utils.format import escape_lines


def warn_of_lost_steps(*runs: Path) -> None:
    """Print a warning for each run that has lost lines; raise a RecordError of a damaged one."""
    from truing.record import RunReader
    from truing.record.store import RUN

    for run in (each for each in runs if (each / RUN).is_file()):  # the command itself refuses the others
        try:
            RunReader(run).check_complete()
        except RecordError as error:
            if error.__cause__ is not None:  # a line that cannot be read: there is no result
                raise
            typer.secho(
                escape_lines(f"warning: {error.what}: {error.got}; what follows is of the others"), err=True
            )
