"""`truing check`: whether a recipe's environment and chat template can be trained on."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truing.api import environment
from truing.chat import make_chat
from truing.check import Checked, Report, check, facts
from truing.config import Recipe, load_recipe
from truing.models.load import load
from truing.rollout.collect import Scene

SHOWN = 3
"""Findings of one check that are printed; --json has all."""


def check_recipe(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in env.train=100")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Check RECIPE's environment and chat template before training: exit 0 clean, 1 findings, 2 not run."""
    resolved = load_recipe(recipe, overrides or ())
    report = check(_scene(resolved))
    if as_json:
        print(json.dumps({"recipe": resolved.name} | facts(report), ensure_ascii=False))
    else:
        _show(Console(highlight=False), report)
    if any(result.findings for result in report.values()):
        raise typer.Exit(1)


def _scene(recipe: Recipe) -> Scene:
    """What a run of the recipe would play in."""
    env, model = environment(recipe), recipe.model
    loaded = load(model.name, revision=model.revision, chat_template=model.chat_template, device="cpu")
    chat = make_chat(loaded.tokenizer, loaded.stop_ids, **recipe.chat.model_dump())
    contract = recipe.sampling.contract(loaded.stop_ids)
    return Scene(chat, env, contract, recipe.episode, loaded.context_length)


def _show(console: Console, report: Report) -> None:
    """A line for each check, then each finding in full."""
    for name, result in report.items():
        _line(console, f"{_mark(result)} {name}" + (f"  {result.count}" if result.count else ""))
        for note in result.notes:
            _line(console, f"    {note}")
        for missing in result.missing:
            _line(console, f"    not checked: {missing}")
    for name, result in report.items():
        for finding in result.findings[:SHOWN]:
            console.print()
            _line(console, f"✗ {name}: {finding.where}")
            _line(console, f"  {finding.what}")
            told = {"got": finding.got, "expected": finding.expected, "remedy": finding.remedy}
            for key, text in told.items():
                if text:
                    _line(console, f"    {key}: {text}")
        if len(result.findings) > SHOWN:
            _line(console, f"  and {len(result.findings) - SHOWN} more: --json lists all")


def _mark(result: Checked) -> str:
    """How a check ended: a fault, clean, or nothing looked at."""
    if result.findings:
        return "✗"
    return "✓" if result.count else "–"


def _line(console: Console, text: str) -> None:
    """Print a line in which nothing commands the terminal."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    console.print(shown, markup=False, soft_wrap=True)
