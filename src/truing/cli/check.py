"""`truing check`: whether a recipe can be trained on, or what is wrong with a run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from truing.config import load_recipe, names_embedded
from truing.errors import RecipeError
from truing.words import counted

if TYPE_CHECKING:
    from truing.doctor.examine import Diagnosis


def check_target(
    target: Annotated[Path, typer.Argument(help="A recipe, a run directory, or another trainer's log.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in env.train=100")] = None,
    select: Annotated[str, typer.Option(help="Rules or families, such as MSK,RAT001.")] = "",
    ignore: Annotated[str, typer.Option(help="Rules or families to leave out.")] = "",
    static: Annotated[bool, typer.Option("--static", help="Of a recipe, train nothing.")] = False,
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
    rules = select.split(",") if select else [], ignore.split(",") if ignore else []
    if (target / "run.json").is_file() or any(target.glob("*.step.safetensors")):
        found = _run(target, *rules, form)
    elif target.suffix != ".toml" and not names_embedded(target):
        found = _foreign(target, *rules, form, overrides or [])
    elif form in ("sarif", "junit"):
        raise RecipeError(f"--{form} is of a run", got=target, expected="a run directory, or a log")
    else:
        found = _recipe(target, overrides or [], form, static)
    if found:
        raise typer.Exit(1)


def _recipe(path: Path, overrides: list[str], form: str, static: bool) -> bool:
    """Check environment and template, then two updates of each stage; whether anything was found."""
    resolved = load_recipe(path, overrides)
    from truing.api import check, preflight
    from truing.checks import facts
    from truing.doctor.examine import is_finding
    from truing.doctor.report import facts as rule_facts
    from truing.doctor.report import lines

    console = Console(highlight=False)
    report = check(resolved)
    if form == "text":
        console.print(str(report), markup=False, soft_wrap=True)
    # a recipe whose tasks cannot be used is not trained on either
    diagnosis = None if static or report.findings else preflight(resolved, watch=_told)
    if form == "json":
        told = {} if diagnosis is None else {"rules": rule_facts(diagnosis)}
        print(json.dumps({"recipe": resolved.name} | facts(report) | told, ensure_ascii=False))
    elif diagnosis is not None:
        for text, style in lines(diagnosis, "RUN"):
            console.print(text, style=style or None, markup=False, soft_wrap=True)
    return bool(report.findings) or any(map(is_finding, diagnosis.results() if diagnosis else []))


def _told(kind: str, facts: Mapping[str, Any]) -> None:
    """Where the short run is, and its first tokens in words."""
    console = Console(stderr=True, highlight=False)
    if kind == "stage":
        console.print(f"{counted(facts['steps'], 'update')} of {facts['stage']} …", markup=False)
    if kind == "boundary" and facts["step"] == 0:
        for text, codes in facts["lines"]:
            console.print(f"  {text}  [{codes}]", markup=False, soft_wrap=True, style="dim")


def _run(run: Path, select: list[str], ignore: list[str], form: str) -> bool:
    """Judge what is on record; whether any rule found anything."""
    from truing.doctor.postmortem import post_mortem

    return _show(post_mortem(run, select, ignore), run, run / "steps.jsonl", form)


def _foreign(target: Path, select: list[str], ignore: list[str], form: str, overrides: list[str]) -> bool:
    """Judge what another trainer logged; whether any rule found anything."""
    from truing.doctor.importers.judge import judge

    named = dict(each.partition("=")[::2] for each in overrides)
    if named.keys() - {"run"}:
        raise RecipeError("a log takes no settings", got=" ".join(overrides), expected="run=NAME, or nothing")
    judged = judge(target, select, ignore, named.get("run"))
    return _show(judged.diagnosis, target, target, form, judged.facts(), list(judged.lines()))


def _show(
    diagnosis: "Diagnosis",
    run: Path,
    file: Path,
    form: str,
    more: Mapping[str, Any] = {},
    below: Sequence[tuple[str, str]] = (),
) -> bool:
    """Print a diagnosis; whether it has a finding.

    Args:
        diagnosis: of a run.
        run: what was judged.
        file: where its updates are.
        form: text, json, sarif or junit.
        more: for JSON.
        below: lines with their styles, for the text.
    """
    from truing.doctor.examine import is_finding
    from truing.doctor.formats import junit, sarif
    from truing.doctor.report import facts, lines

    if form == "json":
        print(json.dumps({"run": str(run)} | facts(diagnosis) | dict(more), ensure_ascii=False))
    elif form == "sarif":
        print(json.dumps(sarif(diagnosis, str(file)), ensure_ascii=False))
    elif form == "junit":
        print(junit(diagnosis, str(run)))
    else:
        console = Console(highlight=False)
        for text, style in [*lines(diagnosis, str(run)), *below]:
            console.print(text, style=style or None, markup=False, soft_wrap=True)
    return any(is_finding(result) for result in diagnosis.results())
