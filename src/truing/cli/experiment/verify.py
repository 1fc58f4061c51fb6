"""`truing verify`: accept or reject a recipe, in phases."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding

from truing.cli.recipe import recipe_of


def verify_recipe(
    recipe: Annotated[Path, typer.Argument(help="A TOML file, or the name of a built-in recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in grpo.steps=20")] = None,
    steps: Annotated[int, typer.Option(min=10, help="Steps of the stage that is verified.")] = 100,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default a new one under runs/.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Accept or reject RECIPE before a long run: checks, then 10 steps, then 100 steps.

    Exit code 0: accepted. 1: rejected. 2: it could not run.
    """
    resolved = recipe_of(recipe, overrides or ())
    from truing.cli.diagnose.scorecard import scorecard_table
    from truing.cli.of_clone import from_clone
    from truing.lab.acceptance import verify

    console, phases = Console(highlight=False, stderr=as_json), []
    for phase in verify(resolved, out, steps, from_clone("probes.of_stage", "probe_stage")):
        phases.append(phase)
        result = "[green]passed[/]" if phase.passed else "[red]failed[/]"
        console.print(f"\n[bold]{phase.name}[/]: {result}")
        for line in phase.lines:
            console.print(f"  {line}", markup=False, soft_wrap=True)
        console.print(Padding(scorecard_table(phase.criteria, with_readings=False), (0, 2)))
    accepted = all(phase.passed for phase in phases)
    console.print("the recipe is accepted" if accepted else "the recipe is rejected", style="bold")
    if as_json:
        print(
            json.dumps(
                {"accepted": accepted, "phases": [asdict(phase) for phase in phases]}, ensure_ascii=False
            )
        )
    if not accepted:
        raise typer.Exit(1)
