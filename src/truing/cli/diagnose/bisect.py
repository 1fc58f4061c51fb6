"""`truing bisect` and `truing compare`: which part of a trainer differs, and where two runs differ."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from truing.errors import RecipeError
from truing.terminal.say import say, say_all
from truing.utils.format import with_count

if TYPE_CHECKING:
    from truing.doctor.bisect import Trial
    from truing.doctor.evidence import Step
    from truing.doctor.verdict import Finding


def bisect_run(
    run: Annotated[Path, typer.Argument(help="A run directory, or a trace of another trainer.")],
    stage: Annotated[str | None, typer.Option(help="Stage of the step.")] = None,
    step: Annotated[
        int | None,
        typer.Option(help="Step, from 1; by default the first with a proven fault."),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Start and import what the run's recipe names.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the part of the trainer that computes a wrong value: swap each for a second implementation.

    Exit code 0: no part differs, and no rule finds anything. 1: otherwise.
    """
    if _bisect(run, stage, None if step is None else step - 1, trust, as_json):
        raise typer.Exit(1)


def _bisect(run: Path, stage: str | None, step: int | None, trust: bool, as_json: bool) -> bool:
    """Print the result of each swap; return whether a part differs, or a rule has an unexplained finding."""
    from truing.api import bisect
    from truing.doctor.bisect import first_differing
    from truing.doctor.bisect_report import code_location, unexplained_findings
    from truing.doctor.postmortem import suppressed_rules
    from truing.doctor.traces.read import is_trace

    chosen, trials = bisect(run, stage=stage, step=step, trust=trust)
    differing, findings = first_differing(trials), unexplained_findings(chosen, trials, suppressed_rules(run))
    location = code_location(differing.part, chosen.stage) if differing and not is_trace(run) else ""
    if as_json:
        payload = {"run": str(run), "stage": chosen.stage, "step": chosen.step + 1}
        payload |= {"guilty": differing.part if differing else None, "home": location or None}
        payload |= {
            "unexplained": [each.code for each in findings],
            "parts": [asdict(each) for each in trials],
        }
        print(json.dumps(payload, ensure_ascii=False))
    else:
        _print_parts(run, chosen, trials, findings, location)
    return bool(differing or findings)


def _print_parts(
    run: Path, step: "Step", trials: Sequence["Trial"], findings: Sequence["Finding"], location: str
) -> None:
    """Print each part, then the verdict."""
    from truing.doctor.bisect import first_differing, lines

    samples = with_count(len(step.samples), "sample")
    say(f"{run}: step {step.step + 1} of {step.stage}, {samples}", "bold")
    say_all(lines(trials))
    differing, swapped = first_differing(trials), any(each.state == "same" for each in trials)
    if differing:
        text = f"differs: {differing.part}" + (f" (computed in {location})" if location else "")
    elif findings:
        codes = ", ".join(dict.fromkeys(f"{each.claim.verdict} {each.code}" for each in findings))
        no_part = "no swapped part differs" if swapped else "no part could be swapped"
        text = f"rules have findings, and {no_part}: {codes} (truing check {quote(str(run))})"
    else:
        text = "no part differs from its second implementation" if swapped else "no part could be swapped"
    style = "bold red" if differing else "bold yellow" if findings or not swapped else "bold green"
    say(text, style)


def compare_runs(
    run: Annotated[Path, typer.Argument(help="A run directory, or another trainer's trace.")],
    other: Annotated[Path, typer.Argument(help="Another one of the same kind.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show where two runs first differ: recipe, machine, step, sample and token.

    Exit code 0: they are the same. 1: they differ.
    """
    from truing.analysis.compare import compare, comparison_lines
    from truing.cli.inspect.lost_steps import warn_of_lost_steps
    from truing.doctor.traces.read import is_trace

    if is_trace(run) or is_trace(other):
        _compare_traces(run, other, as_json)
        return
    warn_of_lost_steps(run, other)
    comparison = compare(run, other)
    if as_json:
        payload = asdict(comparison)
        if difference := payload["first_difference"]:
            difference["step"] += 1  # steps count from 1
        print(json.dumps(payload, ensure_ascii=False))
    else:
        say_all(comparison_lines(comparison))
    if comparison.differs:
        raise typer.Exit(1)


def _compare_traces(one: Path, other: Path, as_json: bool) -> None:
    """Print where two traces first differ; exit with 1 if they do."""
    from truing.doctor.traces.compare import compare_traces
    from truing.doctor.traces.read import is_trace
    from truing.utils.jsonl import dump_json

    for each in (one, other):
        if not is_trace(each):
            raise RecipeError(
                "a trace is compared with a trace", got=each, expected="another trainer's trace"
            )
    comparison = compare_traces(one, other)
    if as_json:
        print(dump_json(asdict(comparison)).decode())
    else:
        say_all(comparison.lines())
    if not comparison.is_same:
        raise typer.Exit(1)
