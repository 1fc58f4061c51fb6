"""`truing check`: faults of a recipe, a run or another trainer's log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truing.cli.recipe import recipe_of
from truing.config import is_builtin_recipe
from truing.errors import RecipeError
from truing.terminal.say import say, say_all
from truing.utils.format import with_count

if TYPE_CHECKING:
    from truing.doctor.diagnosis import Diagnosis


def check_target(  # noqa: PLR0913 — typer takes each option as an argument
    target: Annotated[Path, typer.Argument(help="A recipe, a run, or another trainer's trace or log.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="key=value, as in env.train=100; of a trace a setting, as in advantage=loo"),
    ] = None,
    setup: Annotated[
        Path | None,
        typer.Option(help="Of a trace: its trainer's configuration file (verl, NeMo-RL, prime-rl)."),
    ] = None,
    select: Annotated[list[str] | None, typer.Option(help="Rules or families, such as MSK,RAT001.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Rules or families to skip.")] = None,
    static: Annotated[bool, typer.Option("--static", help="Check a recipe without training.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
    as_sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF; only for a run.")] = False,
    as_junit: Annotated[bool, typer.Option("--junit", help="Print JUnit XML; only for a run.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on suspected faults, too.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Name the unchecked rules, and their missing inputs.")
    ] = False,
) -> None:
    """Check a recipe before training, or a run or another trainer's log after it, for faults.

    Exit code 0: no fault is proven. 1: one is, or with --strict suspected. 2: it could not run.
    """
    kinds = {"json": as_json, "sarif": as_sarif, "junit": as_junit}
    formats = [name for name, chosen in kinds.items() if chosen]
    if len(formats) > 1:
        raise RecipeError("a check has one output format", got=" and ".join(f"--{name}" for name in formats))
    options = OutputOptions(formats[0] if formats else "text", strict, verbose)
    rules = _codes(select), _codes(ignore)
    if not (target / "run.json").is_file() and _has_steps(target):
        fails = _check_trace(target, *rules, options, overrides or [], setup)
    elif setup is not None:
        raise RecipeError("--setup is of a trace", got=target, expected="another trainer's trace or dump")
    elif (target / "run.json").is_file():
        fails = _check_run(target, *rules, options, overrides or [])
    elif target.suffix != ".toml" and not is_builtin_recipe(target):
        fails = _check_log(target, *rules, options, overrides or [])
    elif options.format in ("sarif", "junit"):
        raise RecipeError(f"--{options.format} needs a run", got=target, expected="a run directory, or a log")
    else:
        fails = _check_recipe(target, overrides or [], options, static)
    if fails:
        raise typer.Exit(1)


def _has_steps(target: Path) -> bool:
    """Return whether a target is another trainer's trace or dump; a recipe is told without loading torch."""
    if target.suffix == ".toml" or not target.exists():
        return False
    from truing.doctor.traces.read import is_trace

    return is_trace(target)


@dataclass(frozen=True)
class OutputOptions:
    """How a check is printed, and what fails it."""

    format: str  # text, json, sarif or junit
    strict: bool
    verbose: bool


def _check_recipe(path: Path, overrides: list[str], options: OutputOptions, static: bool) -> bool:
    """Check environment and template, then two steps of each stage; return whether the check fails."""
    recipe = recipe_of(path, overrides)
    from truing.api import check, preflight
    from truing.checks import report_json
    from truing.doctor.diagnosis import fails
    from truing.doctor.report.text import report_facts as rule_facts
    from truing.doctor.report.text import report_lines
    from truing.learner.memory_prediction import predict_memory

    report, memory = check(recipe), predict_memory(recipe)
    if options.format == "text":
        say(str(report))
        say(memory.text())
    # do not train on a recipe whose tasks are unusable
    diagnosis = None if static or report.findings else preflight(recipe, on_event=_print_progress)
    if options.format == "json":
        rule_results = {} if diagnosis is None else {"rules": rule_facts(diagnosis)}
        facts = {"recipe": recipe.name} | report_json(report) | {"memory": memory.json()} | rule_results
        print(json.dumps(facts, ensure_ascii=False))
    elif diagnosis is not None:
        say_all(report_lines(diagnosis, "RUN", options.verbose))
    results = diagnosis.results() if diagnosis else []
    return bool(report.findings) or any(fails(each, options.strict) for each in results)


def _print_progress(kind: str, facts: Mapping[str, Any]) -> None:
    """Print the progress of the short run, and its first tokens as text."""
    if kind == "stage":
        say(f"{with_count(facts['steps'], 'step')} of {facts['stage']} …", err=True)
    if kind == "boundary" and facts["step"] == 0:
        say_all(((f"  {text}", "dim") for text, _ in facts["lines"]), err=True)


def _codes(values: list[str] | None) -> list[str]:
    """Return the codes of an option that may be repeated, each with several codes."""
    return [code for value in values or () for code in value.split(",") if code]


def _check_run(
    run: Path, select: list[str], ignore: list[str], options: OutputOptions, overrides: list[str]
) -> bool:
    """Check a run directory by the rules; return whether the check fails."""
    from truing.doctor.postmortem import diagnose_run
    from truing.terminal.waiting import Waiting

    if overrides:
        raise RecipeError("a run has its own settings", got=" ".join(overrides), expected="no key=value")
    diagnosis = diagnose_run(run, select, ignore, Waiting("judged {done} of {total} steps"))
    below = [(text, "yellow")] if (text := diagnosis.coverage.text()) else []
    return _print_diagnosis(diagnosis, run, run / "steps.jsonl", options, below=below)


def _check_trace(
    folder: Path,
    select: list[str],
    ignore: list[str],
    options: OutputOptions,
    overrides: list[str],
    setup: Path | None,
) -> bool:
    """Check another trainer's steps by the rules; print first what their rows show."""
    from truing.doctor.formulas.found import Found
    from truing.doctor.postmortem import diagnose_run
    from truing.doctor.traces.advice import advice
    from truing.doctor.traces.configs.config_file import settings_of
    from truing.doctor.traces.read import trace_notes

    found = Found()
    declared = {} if setup is None else settings_of(setup)
    declared |= {name: _value(text) for name, _, text in (each.partition("=") for each in overrides)}
    diagnosis = diagnose_run(folder, select, ignore, on_step=found.add, declared=declared)
    formulas = list(found.lines())
    if options.format == "text":
        say_all((text, "bold") for text in formulas)
    notes = [*trace_notes(folder, declared), *advice(diagnosis)]
    more = {"formulas": formulas, "notes": notes}
    return _print_diagnosis(diagnosis, folder, folder, options, more, [(text, "yellow") for text in notes])


def _value(text: str) -> Any:
    """Return a declared setting: JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_log(
    target: Path, select: list[str], ignore: list[str], options: OutputOptions, overrides: list[str]
) -> bool:
    """Check another trainer's log by the rules; return whether the check fails."""
    from truing.doctor.importers.diagnose_log import diagnose_log

    settings = {name: value for name, _, value in (each.partition("=") for each in overrides)}
    if settings.keys() - {"run"}:
        raise RecipeError("a log takes no settings", got=" ".join(overrides), expected="run=NAME, or nothing")
    log_diagnosis = diagnose_log(target, select, ignore, settings.get("run"))
    below = list(log_diagnosis.lines(options.verbose))
    return _print_diagnosis(log_diagnosis.diagnosis, target, target, options, log_diagnosis.facts(), below)


def _print_diagnosis(
    diagnosis: "Diagnosis",
    run: Path,
    file: Path,
    options: OutputOptions,
    more: Mapping[str, Any] = {},
    below: Sequence[tuple[str, str]] = (),
) -> bool:
    """Print a diagnosis; return whether it fails the check.

    Args:
        diagnosis: of a run.
        run: the run directory, or the log.
        file: the file with its steps.
        options: the output options.
        more: facts for JSON.
        below: lines with their styles, after the text.
    """
    from truing.doctor.diagnosis import fails
    from truing.doctor.report.sarif_junit import junit, sarif
    from truing.doctor.report.text import report_facts, report_lines

    if options.format == "json":
        print(json.dumps({"run": str(run)} | report_facts(diagnosis) | dict(more), ensure_ascii=False))
    elif options.format == "sarif":
        print(json.dumps(sarif(diagnosis, str(file)), ensure_ascii=False))
    elif options.format == "junit":
        print(junit(diagnosis, str(run), options.strict))
    else:
        say_all([*report_lines(diagnosis, str(run), options.verbose), *below])
    return any(fails(result, options.strict) for result in diagnosis.results())
