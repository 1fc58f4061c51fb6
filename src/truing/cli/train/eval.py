"""`truing eval`: evaluate a recipe's model or a run on fixed tasks, paired with another."""

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
    """Evaluate TARGET on its recipe's evaluation tasks: mean reward with 95 % interval, pass@k."""
    from truing.analysis.estimate import pass_at_json, pass_at_text
    from truing.api import evaluate
    from truing.utils.jsonl import dump_json

    found = evaluate(target, overrides=overrides or (), checkpoint=checkpoint)
    other = evaluate(against, overrides=overrides or ()) if against is not None else None
    gain = found.gain_over(other) if other is not None else None
    pass_gains = found.pass_at_gains(other) if other is not None else {}
    if as_json:
        both = [each for each in (found, other) if each is not None]
        payload = {
            "eval": {each.name: asdict(each.estimate()) for each in both},
            "gain": gain and asdict(gain),
            "pass_at": {each.name: pass_at_json(each.pass_at()) for each in both},
            "pass_at_gain": pass_at_json(pass_gains),
        }
        print(dump_json(payload).decode())
        return
    console = Console(highlight=False)
    for evaluation in filter(None, (found, other)):
        parts = "  ".join(f"{name} {value:.3f}" for name, value in evaluation.parts.items())
        console.print(
            f"{evaluation.name}: reward {evaluation.estimate()}   {parts}", markup=False, soft_wrap=True
        )
        if passing := pass_at_text(evaluation.pass_at()):
            console.print(f"  {passing}", markup=False, soft_wrap=True)
    if gain is not None:
        console.print(f"difference, paired: {gain}", markup=False, soft_wrap=True)
    for k, each in pass_gains.items():
        console.print(f"difference of pass@{k}, paired: {each.signed}", markup=False, soft_wrap=True)
