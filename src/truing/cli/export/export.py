"""`truing export`: write a run's policy as a folder that transformers, peft and vLLM load."""

import json
from pathlib import Path
from typing import Annotated

import typer

from truing.utils.format import escape_lines


def export(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    to: Annotated[
        Path | None, typer.Option(help="New folder; by default RUN/export, or RUN/adapter.")
    ] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="Write only the adapter, for peft.")] = False,
    step: Annotated[
        int | None, typer.Option(min=0, help="Steps of the checkpoint; by default the newest.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="Stage of --step; by default the last that has such a checkpoint.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Write a checkpoint of a run, merged or as an adapter, with its sampling parameters."""
    from truing.learner.restore import checkpoint_after, restore_policy
    from truing.models.export import export as write

    kind = "adapter" if adapter else "merged"
    out = to or run / ("adapter" if adapter else "export")
    restored = restore_policy(run, None if step is None else checkpoint_after(run, step, stage))
    warnings = write(restored.policy, restored.loaded, restored.sampling_params, out, kind)
    if as_json:
        print(json.dumps({"path": str(out), "kind": kind, "warnings": warnings}))
        return
    for warning in warnings:
        typer.secho(escape_lines(f"warning: {warning}"), err=True, fg="yellow")
    print(out)
