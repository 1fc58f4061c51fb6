"""`truing bench`: speed and memory on this machine, against other trainers and against its limits."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from truing.errors import RecipeError

if TYPE_CHECKING:
    from dev.measure.cases import Case

CASE_HELP = "short, long or agent; with CUDA also gpu-0.6b, gpu-0.6b-4k and gpu-4b"
COST_HELP = ". On 2 cores one pair takes 2, 8 and 6 minutes, and TRL needs 6, 20 and 19 GB of memory."

bench = typer.Typer(
    help="Measure speed and memory on this machine, against other trainers and against its limits.",
    no_args_is_help=True,
)


@bench.callback()
def _help() -> None:
    """Measure speed and memory on this machine, against other trainers and against its limits."""


@bench.command()
def trl(
    case: Annotated[str, typer.Option(help=CASE_HELP + COST_HELP)] = "short",
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of runs, one of each side.")] = 3,
    steps: Annotated[
        int,
        typer.Option(min=1, help="Steps that count: TRL's after its first, Truing's after its first audits."),
    ] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Time a GRPO step against TRL's GRPOTrainer at its fastest: same model, prompts, group, lengths."""
    from dev.measure.compare import compare

    benchmark = _find_case(case)
    result = compare(benchmark, pairs, steps)
    if as_json:
        typer.echo(json.dumps(result))
        return
    threads = " and ".join(f"{result[side]['threads']:.0f}" for side in ("truing", "trl"))
    caption = (
        f"medians of {pairs} pairs, each the median of {steps} steps without an audit"
        f" (`truing bench doctor` has the cost of audits); {threads} threads; peak memory is that of the"
        " side's process; above 1 Truing is faster or smaller"
    )
    table = Table(
        "", "Truing", "TRL", "TRL ÷ Truing", title=f"{case}: {benchmark.description}", caption=caption
    )
    for name, unit in (("step", "s"), ("generate", "s"), ("train", "s"), ("peak_memory", "GB")):
        truing_value, trl_value = (f"{result[side][name]} {unit}" for side in ("truing", "trl"))
        table.add_row(name.replace("_", " "), truing_value, trl_value, str(result[f"ratio_{name}"]))
    Console().print(table)


@bench.command()
def limit(
    case: Annotated[str, typer.Option(help=CASE_HELP + ".")] = "short",
    steps: Annotated[int, typer.Option(min=1, help="Steps that count, after the first audits.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Compare the parts of a step with the limits of this machine, and name the part with most to gain."""
    from dev.measure.roofline import measure_roofline as measure

    benchmark = _find_case(case)
    result = measure(benchmark, steps)
    if as_json:
        typer.echo(json.dumps(result))
        return
    caption = (
        f"medians of {result['steps']} steps without an audit; bound: least seconds on this machine;"
        " share: bound ÷ seconds, where 100 % is the limit"
    )
    title = f"{case}: {benchmark.description}"
    table = Table("", "seconds", "bound", "share", title=title, caption=caption, min_width=60)
    for name, part in result["parts"].items():
        table.add_row(name, f"{part['seconds']:.2f}", f"{part['bound']:.2f}", f"{part['share']:.0%}")
    console = Console()
    console.print(table)
    console.print(
        f"a step takes {result['step']:.2f} s, of which these are parts; {result['threads']} threads"
    )
    for name, rate in result["gemm_gflops"].items():
        share = result["share_forward_backward"][name]
        console.print(f"products by {name}: {rate:.0f} GFLOP/s; forward and backward reach {share:.0%} of it")
    console.print(f"memory is read at {result['read_gb_s']:.1f} GB/s")
    console.print(f"recording takes {result['share_record']:.1%} of the step")
    slowest = result["parts"][result["next"]]
    console.print(
        f"most to gain: {result['next']}, {slowest['seconds'] - slowest['bound']:.1f} s above its bound"
    )
    if max(part["share"] for part in result["parts"].values()) > 1:
        console.print(
            "a share above 100 %: the machine was slower while its rates were measured; run it again"
        )


@bench.command()
def generate(
    rows: Annotated[int, typer.Option(min=1, help="Prompts of a batch.")] = 64,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of runs, one of each side.")] = 2,
    vllm: Annotated[
        Path | None, typer.Option(exists=True, help="The Python of an environment with vLLM's CPU build.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Time generation, with prompts and answers of many lengths, against transformers and vLLM."""
    from dev.measure.generation import compare

    result = compare(rows, pairs, vllm)
    if as_json:
        typer.echo(json.dumps(result))
        return
    title, caption = f"{rows} rows", f"medians of {pairs} pairs; above 1 Truing is faster"
    table = Table("", "tokens/s", "mean tokens of an answer", "Truing ÷ side", title=title, caption=caption)
    for name in ("truing", "hf", "vllm"):
        if name in result:
            measured = result[name]
            ratio = str(result.get(f"ratio_{name}", ""))
            table.add_row(name, str(measured["tokens_per_s"]), str(measured["mean_length"]), ratio)
    Console().print(table)


@bench.command()
def scale(
    steps: Annotated[int, typer.Option(min=1, help="Steps that count, after the first audits.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Time a step for growing groups, prompts, turns and models."""
    from dev.measure.scaling import BASE
    from dev.measure.scaling import measure_scaling as measure

    rows = measure(steps)
    if as_json:
        typer.echo(json.dumps({"base": BASE.description, "rows": rows}))
        return
    caption = f"medians of {steps} steps without an audit, measured once"
    columns = ("changed", "to", "step", "generate", "train", "peak memory")
    table = Table(*columns, title=BASE.description, caption=caption)
    for row in rows:
        seconds = [f"{row[name]:.2f} s" for name in ("step", "generate", "train")]
        table.add_row(row["changed"], str(row["to"]), *seconds, f"{row['peak_memory']:.2f} GB")
    Console().print(table)


@bench.command()
def doctor(
    case: Annotated[str, typer.Option(help=CASE_HELP + ".")] = "short",
    steps: Annotated[int, typer.Option(min=3, help="Steps to run.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Measure the doctor's share of the time of a run's steps."""
    from dev.measure.doctor_cost import measure_doctor_cost as measure

    result = measure(_find_case(case), steps)
    if as_json:
        typer.echo(json.dumps(result))
        return
    typer.echo(
        f"{case}: of {steps} steps the doctor takes {result['whole']:.1%}:"
        f" {result['first']:.1%} of the first, {result['later']:.1%} of the others"
        f" ({result['step_seconds']:.2f} s each);"
        f" {result['looked_at']} steps were audited"
    )


def _find_case(name: str) -> "Case":
    from dev.measure.cases import CASES

    if name not in CASES:
        raise RecipeError(f"unknown case {name!r}", expected=" or ".join(CASES))
    if CASES[name].gpu:
        import torch

        if not torch.cuda.is_available():
            raise RecipeError(f"case {name!r} needs CUDA", got="torch finds no device", expected="a GPU")
    return CASES[name]
