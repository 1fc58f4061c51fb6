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
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Write a run's newest checkpoint, merged or as an adapter, with its sampling parameters."""
    from truing.learner.restore import restore_policy
    from truing.models.export import export as write

    kind = "adapter" if adapter else "merged"
    out = to or run / ("adapter" if adapter else "export")
    restored = restore_policy(run)
    warnings = write(restored.policy, restored.loaded, restored.sampling_params, out, kind)
    if as_json:
        print(json.dumps({"path": str(out), "kind": kind, "warnings": warnings}))
        return
    for warning in warnings:
        typer.secho(escape_lines(f"warning: {warning}"), err=True, fg="yellow")
    print(out)
