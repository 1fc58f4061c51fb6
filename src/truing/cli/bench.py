"""`truing bench`: speed and memory, as ratios against a peer on this machine."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from truing.errors import RecipeError

app = typer.Typer(help="Speed and memory against a peer, on this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Speed and memory against a peer, on this machine."""


@app.command()
def trl(
    case: Annotated[str, typer.Option(help="short or long")] = "long",
    pairs: Annotated[int, typer.Option(min=1, help="turns that each side takes")] = 3,
    steps: Annotated[int, typer.Option(min=2, help="steps of a turn; the last one counts")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """A step of GRPO against TRL's GRPOTrainer at its fastest: same model, prompts, group and lengths."""
    from truing.bench.cases import CASES
    from truing.bench.compare import compare

    if case not in CASES:
        raise RecipeError(f"there is no case {case!r}", expected=" or ".join(CASES))
    found = compare(CASES[case], pairs, steps)
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = Table("", "Truing", "TRL", "TRL ÷ Truing", title=f"{case}: {CASES[case].what}")
    for name, unit in (("step", "s"), ("generate", "s"), ("train", "s"), ("peak_memory", "GB")):
        ours, theirs = (f"{found[side][name]} {unit}" for side in ("truing", "trl"))
        table.add_row(name.replace("_", " "), ours, theirs, str(found[f"ratio_{name}"]))
    Console().print(table)
