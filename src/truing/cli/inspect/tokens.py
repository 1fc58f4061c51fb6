"""`truing tokens`: a sample, token by token, or the first tokens of samples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from truing.errors import RecordError
from truing.terminal.say import say, say_all
from truing.utils.format import escape_control

MIN_WIDTH = 110
"""Columns that a row needs; a narrower terminal wraps lines, so that no number is truncated."""


def tokens(
    run: Annotated[Path, typer.Argument(help="A run directory, or a trace of another trainer.")],
    step: Annotated[
        int | None, typer.Option(help="Step, from 1 as in the progress lines; by default the last.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="Stage of the step; by default the last stage that has it.")
    ] = None,
    sample: Annotated[str, typer.Option(help="Sample of the step: its number, from 1, or its id.")] = "1",
    all_tokens: Annotated[bool, typer.Option("--all", help="A row for each context token too.")] = False,
    first: Annotated[
        bool,
        typer.Option("--first", help="First tokens of samples, as text, of the steps that recorded them."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show each token of a sample: its origin, whether it is trained, and its numbers."""
    from truing.cli.inspect.lost_steps import warn_of_lost_steps
    from truing.cli.inspect.one_sample import (
        call_facts,
        choose_first_tokens,
        choose_sample,
        choose_step,
        sample_facts,
        token_list,
    )
    from truing.cli.inspect.token_table import render
    from truing.doctor.report.token_texts import run_decoder
    from truing.doctor.traces.read import is_trace, trace_steps
    from truing.record import RunReader
    from truing.utils.jsonl import dump_json

    if is_trace(run):
        if first:
            raise RecordError("a trace has no first tokens apart", got=run, remedy="leave out --first")
        steps = list(trace_steps(run))
        table = choose_step([each for each, _ in steps], stage, step)
        decode = steps[-1][1]  # texts of all steps
    else:
        warn_of_lost_steps(run)
        reader = RunReader(run)
        if first:
            _print_first_tokens(choose_first_tokens(reader.events(), stage, step), as_json)
            return
        if not (steps := reader.steps()):
            raise reader.no_step_error()
        table, decode = reader.table(choose_step(steps, stage, step)), run_decoder(run)
    index = choose_sample(table, sample)
    ids = table.streams["token_ids"][table.part(index)].tolist()
    facts, token_facts = sample_facts(table, index), token_list(table, index, decode(ids))
    calls = call_facts(table, index)
    if as_json:
        of_program = {"calls": calls} if calls else {}
        print(dump_json(facts | of_program | {"tokens": token_facts}).decode())
    else:
        console = Console()
        console.width = max(console.width, MIN_WIDTH)
        console.print(render(facts, calls, token_facts, all_tokens=all_tokens))


def _print_first_tokens(recorded: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print the first tokens of steps, as recorded."""
    from truing.utils.jsonl import dump_json

    if as_json:
        print(dump_json(recorded).decode())
        return
    for each in recorded:
        say(escape_control(f"{each['stage']} {each['step']}:"), "bold")
        say_all((escape_control(f"  {text}"), "") for text, _ in each["lines"])
