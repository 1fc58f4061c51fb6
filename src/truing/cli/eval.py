"""`truing eval`: the fixed, paired evaluation of a recipe's model or of a finished run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def evaluate_target(
    target: Annotated[Path, typer.Argument(help="A recipe (its model as it starts) or a run directory.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in eval.tasks=500")] = None,
    against: Annotated[
        Path | None, typer.Option(help="A recipe or run to compare with, task by task.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint of the run, such as grpo-000040.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Evaluate TARGET on its recipe's evaluation tasks, with a 95 % interval."""
    from truing.api import evaluate
    from truing.record.lines import dump_json

    found = evaluate(target, overrides=overrides or (), checkpoint=checkpoint)
    other = evaluate(against, overrides=overrides or ()) if against is not None else None
    gain = found.gain_over(other) if other is not None else None
    if as_json:
        facts = {
            evaluation.name: asdict(evaluation.estimate()) for evaluation in (found, other) if evaluation
        }
        print(dump_json({"eval": facts, "gain": gain and asdict(gain)}).decode())
        return
    console = Console(highlight=False)
    for evaluation in filter(None, (found, other)):
        parts = "  ".join(f"{name} {value:.3f}" for name, value in evaluation.parts.items())
        console.print(
            f"{evaluation.name}: reward {evaluation.estimate()}   {parts}", markup=False, soft_wrap=True
        )
    if gain is not None:
        console.print(f"difference, paired: {gain}", markup=False, soft_wrap=True)
