"""`truing eval`: evaluate a recipe's model or a run on fixed tasks, paired with another."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from truing.terminal.say import say


def evaluate_target(
    target: Annotated[Path, typer.Argument(help="A recipe (its model as it starts) or a run directory.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in eval.tasks=500")] = None,
    against: Annotated[
        Path | None, typer.Option(help="A recipe or run to compare with, task by task.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Steps of the run's checkpoint; by default the newest.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="Stage of --step; by default the last that has such a checkpoint.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Start and import what the recipe in a run directory names.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Evaluate TARGET on its recipe's evaluation tasks: mean reward with 95 % interval, pass@k."""
    from truing.analysis.estimate import pass_at_json, pass_at_text
    from truing.api import evaluate
    from truing.utils.jsonl import dump_json

    first = evaluate(target, overrides=overrides or (), step=step, stage=stage, trust=trust)
    second = evaluate(against, overrides=overrides or (), trust=trust) if against is not None else None
    gain = first.gain_over(second) if second is not None else None
    pass_gains = first.pass_at_gains(second) if second is not None else {}
    if as_json:
        results = [pass_gain for pass_gain in (first, second) if pass_gain is not None]
        payload = {
            "eval": {pass_gain.name: asdict(pass_gain.estimate()) for pass_gain in results},
            "gain": gain and asdict(gain),
            "pass_at": {pass_gain.name: pass_at_json(pass_gain.pass_at()) for pass_gain in results},
            "pass_at_gain": pass_at_json(pass_gains),
        }
        print(dump_json(payload).decode())
        return
    for evaluation in filter(None, (first, second)):
        parts = "  ".join(f"{name} {value:.3f}" for name, value in evaluation.parts.items())
        say(f"{evaluation.name}: reward {evaluation.estimate()}   {parts}")
        if passing := pass_at_text(evaluation.pass_at()):
            say(f"  {passing}")
    if gain is not None:
        say(f"difference, paired: {gain}")
    for k, pass_gain in pass_gains.items():
        say(f"difference of pass@{k}, paired: {pass_gain.signed}")
