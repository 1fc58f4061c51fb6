"""`truing probes`: small problems with known answers, through the trainer's own code."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from dev.probes.result import ProbeOutcome


def probes(
    names: Annotated[list[str] | None, typer.Argument(help="Names, e.g. P3; by default all.")] = None,
    algo: Annotated[list[str] | None, typer.Option(help="Only this algorithm; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each result.")] = False,
) -> None:
    """Run the trainer's own code on small problems with known answers, on the CPU.

    Exit code 0: every number is as expected. 1: one is not.
    """
    from dev.probes.run_probes import probes_by_name, run_probes

    console, title, failed = Console(highlight=False), "", 0
    chosen = probes_by_name(names or ())
    for outcome in run_probes(chosen, algo or ()):
        failed += not outcome.passed
        if as_json:
            print(json.dumps(outcome.to_json(), ensure_ascii=False), flush=True)
            continue
        heading = next(f"{probe.name}  {probe.title}" for probe in chosen if probe.name == outcome.probe)
        if heading != title:
            console.print(f"\n[bold]{heading}[/]", soft_wrap=True)
            title = heading
        _print_outcome(console, outcome)
    if failed:
        raise typer.Exit(1)


def _print_outcome(console: Console, outcome: "ProbeOutcome") -> None:
    """Print a line for an outcome; of a failed one, a line for each number too."""
    status = "[green]ok[/]" if outcome.passed else "[red]FAILED[/]"
    first = outcome.findings[0]
    summary = f"{first.name} {first.got:.3g} ({first.expected})" if outcome.passed else ""
    console.print(f"  {outcome.algo:<10} {status}  {outcome.seconds:4.1f} s  {summary}", soft_wrap=True)
    if not outcome.passed:
        for finding in outcome.findings:
            mark = " " if finding.holds else "✗"
            console.print(
                f"    {mark} {finding.name}: got {finding.got:.6g}, expected {finding.expected}",
                soft_wrap=True,
            )
