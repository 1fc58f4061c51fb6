"""`truing train`: run a recipe."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truing.config import load_recipe


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in grpo.steps=20")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default a new one under runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda, as model.device; by default CUDA where there is one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Train what RECIPE says: SFT, RFT, REINFORCE, RLOO, GRPO, PPO, with an evaluation around each stage."""
    chosen = [f"model.device={device}"] if device else []
    resolved = load_recipe(recipe, [*(overrides or ()), *chosen])
    from truing.api import train as run_recipe
    from truing.cli.finish import finished_json, print_finish

    result = run_recipe(resolved, out=out, resume=resume)
    if as_json:
        print(finished_json(result))
    else:
        print_finish(Console(highlight=False), result)
