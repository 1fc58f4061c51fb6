"""`truing eval`: the fixed, paired evaluation of a recipe's model or of a finished run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truing.api import environment
from truing.config import load_recipe
from truing.errors import RecordError
from truing.record import RunReader
from truing.train.evaluate import Evaluation
from truing.train.recording import check_judged
from truing.train.restore import restore_weights
from truing.train.session import open_session


def evaluate(
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
    """Evaluate TARGET on its recipe's evaluation tasks, with a 95 % bootstrap interval."""
    found = evaluate_one(target, overrides or [], checkpoint)
    other = evaluate_one(against, overrides or [], None) if against is not None else None
    gain = found.gain_over(other) if other is not None else None
    if as_json:
        facts = {
            evaluation.name: asdict(evaluation.estimate()) for evaluation in (found, other) if evaluation
        }
        print(json.dumps({"eval": facts, "gain": gain and asdict(gain)}))
        return
    console = Console(highlight=False)
    for evaluation in filter(None, (found, other)):
        parts = "  ".join(f"{name} {value:.3f}" for name, value in evaluation.parts.items())
        console.print(
            f"{evaluation.name}: reward {evaluation.estimate()}   {parts}", markup=False, soft_wrap=True
        )
    if gain is not None:
        console.print(f"difference, paired over {gain.tasks} tasks: {gain}", markup=False, soft_wrap=True)


def evaluate_one(target: Path, overrides: list[str], checkpoint: str | None) -> Evaluation:
    """The evaluation of a recipe's model as it starts, or of a run at a checkpoint (the newest)."""
    is_run = target.is_dir()
    recipe = load_recipe(target / "recipe.toml" if is_run else target, overrides)
    session = open_session(recipe, environment(recipe))
    if not is_run and checkpoint is not None:
        raise RecordError(
            "a recipe has no checkpoints", got=f"--checkpoint {checkpoint}", expected="a run directory"
        )
    if is_run and not overrides:
        check_judged(session, RunReader(target).run())
    if is_run:
        restore_weights(target, session.loaded, session.parameters, checkpoint)
    session.sync_sampler(0)
    return session.evaluate(str(target))
