"""`truing models`: list the built-in models; `truing models get`: fetch one ahead of time."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(help="List the built-in models, or get one.", invoke_without_command=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


@app.callback()
def models(context: typer.Context, as_json: AsJson = False) -> None:
    """List the built-in models: size, license, and whether they are in the cache."""
    if context.invoked_subcommand is not None:
        return
    from truing.models import builtin

    facts = [builtin.model_facts(name) for name in builtin.BUILTIN_MODELS]
    if as_json:
        print(json.dumps({"models": facts}))
        return
    table = Table("name", "description", "parameters", "license", "cached")
    for fact in facts:
        size = f"{fact['parameters'] / 1e6:.1f} M"
        table.add_row(fact["name"], fact["about"], size, fact["licence"], fact["path"] or "no")
    Console().print(table)


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="Name of a built-in model.")], as_json: AsJson = False
) -> None:
    """Fetch a built-in model into the cache, and print its folder."""
    from truing.models import builtin

    folder = builtin.ensure_built(name)
    print(json.dumps(builtin.model_facts(name)) if as_json else folder)
