"""`truing fork`: go on from a checkpoint of a run, in a run of its own, with another recipe."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer


def fork_run(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    changes: Annotated[
        list[str] | None, typer.Argument(help="key=value, as in grpo.learning_rate=1e-5")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="The new run directory; by default RUN-fork.")] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Steps of the checkpoint; by default the newest.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="Stage of --step; by default the last that has such a checkpoint.")
    ] = None,
) -> None:
    """Make a run that goes on from a checkpoint of RUN: its weights, moments, position in the data, draws.

    Without changes it trains to the bits that RUN has. The parent is on record.
    """
    from truing.trainer.fork import fork

    out = to if to is not None else run.with_name(f"{run.name}-fork")
    print(fork(run, out, changes or (), step, stage))
    print(f"train it: truing train {quote(str(out / 'recipe.toml'))} --out {quote(str(out))} --resume")
