"""`truing faults`: the detection matrix."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truing.utils.format import escape_lines


def faults(  # noqa: PLR0913 - options of a command
    names: Annotated[list[str] | None, typer.Argument(help="Faults or healthy runs; all by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A sample, in under 50 seconds.")] = False,
    twin_runs: Annotated[
        bool, typer.Option("--twins", help="Run the recipes of the faults without the fault, too.")
    ] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write the matrix to this file.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Folder to keep each run and its findings in.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of each run's last stage.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="model.dtype of every run; bfloat16 leaves out what it hides.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="model.device of every run; leaves out runs of several ranks.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON per run.")] = False,
) -> None:
    """Run each planted fault and each healthy run, and show what the doctor finds.

    Exit code 0: it finds each fault, and none in a healthy run. 1: otherwise.
    """
    from dev.faults.detection_matrix import QUICK, page, passed, provable, run_all, runs, runs_by_name
    from dev.faults.unplanted_runs import unplanted_runs

    chosen = list(QUICK) if quick and not names else runs_by_name(names or [])
    chosen += list(unplanted_runs()) if twin_runs else []
    chosen, left_out = provable(chosen, dtype)
    if device is not None:
        known = runs()
        chosen = [name for name in chosen if known[name].ranks == 1]
    given = {"dtype": dtype, "device": device}
    changes = {f"model.{key}": value for key, value in given.items() if value is not None}
    console, results = Console(highlight=False), []
    for fault in () if as_json else left_out:
        console.print(escape_lines(f"– {fault.name}: {fault.not_in_bfloat16}"), markup=False, soft_wrap=True)
    for count, result in enumerate(run_all(chosen, keep, steps, changes), 1):
        results.append(result)
        if as_json:
            print(json.dumps(result.facts() | {"passed": passed(result)}, ensure_ascii=False), flush=True)
            continue
        fired = ", ".join(dict.fromkeys(f"{f.claim.verdict} {f.code}" for f in result.fired)) or "nothing"
        mark, style = ("✓", "green") if passed(result) else ("✗", "red")
        text = f"{mark} {count}/{len(chosen)} {result.fault.name}: {result.error or fired}"
        console.print(escape_lines(text), style=style, markup=False, soft_wrap=True)
    if markdown is not None:
        options = "".join(f" --{key} {value}" for key, value in given.items() if value is not None)
        command = f"truing faults{' --twins' if twin_runs else ''}{options} --markdown {markdown}"
        markdown.write_text(page(results, command, dtype, left_out), encoding="utf-8")
    failed = [result.fault.name for result in results if not passed(result)]
    if failed:
        console.print(f"wrong: {', '.join(failed)}", style="red", soft_wrap=True)
        raise typer.Exit(1)
