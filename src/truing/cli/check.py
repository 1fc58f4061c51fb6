"""`truing check`: whether a recipe can be trained on, or what is wrong with a run."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truing.config import load_recipe
from truing.errors import RecipeError


def check_target(
    target: Annotated[Path, typer.Argument(help="A TOML recipe, or a run directory.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in env.train=100")] = None,
    select: Annotated[str, typer.Option(help="Rules or families, such as MSK,RAT001.")] = "",
    ignore: Annotated[str, typer.Option(help="Rules or families to leave out.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
    as_sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF, of a run.")] = False,
    as_junit: Annotated[bool, typer.Option("--junit", help="Print JUnit XML, of a run.")] = False,
) -> None:
    """Check a recipe before training, or a run by the doctor's rules: exit 0 clean, 1 findings, 2 not run."""
    kinds = {"json": as_json, "sarif": as_sarif, "junit": as_junit}
    asked = [name for name, wanted in kinds.items() if wanted]
    if len(asked) > 1:
        raise RecipeError("a check is printed once", got=" and ".join(f"--{name}" for name in asked))
    form = asked[0] if asked else "text"
    if target.is_dir():
        found = _run(target, select.split(",") if select else [], ignore.split(",") if ignore else [], form)
    elif form in ("sarif", "junit"):
        raise RecipeError(f"--{form} is of a run", got=target, expected="a run directory")
    else:
        found = _recipe(target, overrides or [], form)
    if found:
        raise typer.Exit(1)


def _recipe(path: Path, overrides: list[str], form: str) -> bool:
    """Check an environment and a chat template; whether anything was found."""
    resolved = load_recipe(path, overrides)
    from truing.api import check
    from truing.checks import facts

    report = check(resolved)
    if form == "json":
        print(json.dumps({"recipe": resolved.name} | facts(report), ensure_ascii=False))
    else:
        Console(highlight=False).print(str(report), markup=False, soft_wrap=True)
    return bool(report.findings)


def _run(run: Path, select: list[str], ignore: list[str], form: str) -> bool:
    """Judge what is on record; whether any rule found anything."""
    from truing.doctor.examine import is_finding
    from truing.doctor.formats import junit, sarif
    from truing.doctor.postmortem import post_mortem
    from truing.doctor.report import facts, lines

    diagnosis = post_mortem(run, select, ignore)
    if form == "json":
        print(json.dumps({"run": str(run)} | facts(diagnosis), ensure_ascii=False))
    elif form == "sarif":
        print(json.dumps(sarif(diagnosis, str(run)), ensure_ascii=False))
    elif form == "junit":
        print(junit(diagnosis, str(run)))
    else:
        console = Console(highlight=False)
        for text, style in lines(diagnosis, str(run)):
            console.print(text, style=style or None, markup=False, soft_wrap=True)
    return any(is_finding(result) for result in diagnosis.results())
