"""`truing bench`: speed and memory on this machine, against a peer and against its limits."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from truing.errors import RecipeError

if TYPE_CHECKING:
    from truing.bench.cases import Case

app = typer.Typer(
    help="Speed and memory on this machine, against a peer and against its limits.", no_args_is_help=True
)


@app.callback()
def bench() -> None:
    """Speed and memory on this machine, against a peer and against its limits."""


@app.command()
def trl(
    case: Annotated[str, typer.Option(help="short, long or agent")] = "long",
    pairs: Annotated[int, typer.Option(min=1, help="turns that each side takes")] = 3,
    steps: Annotated[int, typer.Option(min=2, help="steps of a turn; the last one counts")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """A step of GRPO against TRL's GRPOTrainer at its fastest: same model, prompts, group and lengths."""
    from truing.bench.compare import compare

    chosen = _case(case)
    found = compare(chosen, pairs, steps)
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = Table("", "Truing", "TRL", "TRL ÷ Truing", title=f"{case}: {chosen.what}")
    for name, unit in (("step", "s"), ("generate", "s"), ("train", "s"), ("peak_memory", "GB")):
        ours, theirs = (f"{found[side][name]} {unit}" for side in ("truing", "trl"))
        table.add_row(name.replace("_", " "), ours, theirs, str(found[f"ratio_{name}"]))
    Console().print(table)


@app.command()
def limit(
    case: Annotated[str, typer.Option(help="short, long or agent")] = "long",
    steps: Annotated[int, typer.Option(min=2, help="steps to run; the last one counts")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """The parts of a step against what this machine can do, and what to mend next."""
    from truing.bench.limit import limit as measure

    chosen = _case(case)
    found = measure(chosen, steps)
    if as_json:
        typer.echo(json.dumps(found))
        return
    machine = f"{found['gemm_gflops']:.0f} GFLOP/s, {found['read_gb_s']:.1f} GB/s"
    table = Table("", "seconds", "bound", "share", title=f"{case}: {chosen.what}; {machine}")
    for name, part in found["parts"].items():
        table.add_row(name, f"{part['seconds']:.2f}", f"{part['bound']:.2f}", f"{part['share']:.0%}")
    console = Console()
    console.print(table)
    console.print(f"furthest from its bound: {found['next']}")


def _case(name: str) -> "Case":
    from truing.bench.cases import CASES

    if name not in CASES:
        raise RecipeError(f"there is no case {name!r}", expected=" or ".join(CASES))
    return CASES[name]
