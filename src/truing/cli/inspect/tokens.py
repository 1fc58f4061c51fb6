"""`truing tokens`: a sample, token by token."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

MIN_WIDTH = 110
"""Columns that a row needs; a narrower terminal wraps lines, so that no number is truncated."""


def tokens(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    step: Annotated[
        int | None, typer.Option(help="Update, from 1 as in the progress lines; by default the last.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="Stage of the update; by default the last stage that has it.")
    ] = None,
    sample: Annotated[int, typer.Option(help="Sample of the update, from 0.")] = 0,
    all_tokens: Annotated[bool, typer.Option("--all", help="A row for each context token too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show each token of a sample: its origin, whether it is trained, and its numbers."""
    from truing.cli.inspect.lost_updates import warn_of_lost_updates
    from truing.cli.inspect.one_sample import choose_sample, choose_step, sample_facts, token_list
    from truing.cli.inspect.token_table import render
    from truing.doctor.report.token_texts import run_decoder
    from truing.record import RunReader
    from truing.utils.jsonl import dump_json

    warn_of_lost_updates(run)
    reader = RunReader(run)
    chosen = choose_step(reader.steps(), stage, step)
    row = choose_sample(reader.samples(chosen.stage, chosen.step), sample)
    token_facts = token_list(row, run_decoder(run)(row.sample.token_ids.tolist()))
    if as_json:
        print(dump_json(sample_facts(chosen, row) | {"step": chosen.step, "tokens": token_facts}).decode())
    else:
        console = Console()
        console.width = max(console.width, MIN_WIDTH)
        console.print(render(sample_facts(chosen, row), token_facts, all_tokens=all_tokens))
