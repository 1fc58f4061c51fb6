"""`truing check`: whether a recipe's environment and chat template can be trained on."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truing.config import load_recipe


def check_recipe(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in env.train=100")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Check RECIPE's environment and chat template before training: exit 0 clean, 1 findings, 2 not run."""
    resolved = load_recipe(recipe, overrides or ())
    from truing.api import check
    from truing.checks import facts

    report = check(resolved)
    if as_json:
        print(json.dumps({"recipe": resolved.name} | facts(report), ensure_ascii=False))
    else:
        Console(highlight=False).print(str(report), markup=False, soft_wrap=True)
    if report.findings:
        raise typer.Exit(1)
