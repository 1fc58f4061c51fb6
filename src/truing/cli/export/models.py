"""`truing models`: the embedded models, and `truing models get`, which fetches one ahead of time."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(help="Embedded models: list them, or get one.", invoke_without_command=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON line for machines.")]


@app.callback()
def models(context: typer.Context, as_json: AsJson = False) -> None:
    """List the embedded models: size, licence, and whether they are in the cache."""
    if context.invoked_subcommand is not None:
        return
    from truing.models import builtin

    facts = [builtin.model_facts(name) for name in builtin.BUILTIN_MODELS]
    if as_json:
        print(json.dumps({"models": facts}))
        return
    table = Table("name", "what", "parameters", "licence", "cached")
    for fact in facts:
        size = f"{fact['parameters'] / 1e6:.1f} M"
        table.add_row(fact["name"], fact["about"], size, fact["licence"], fact["path"] or "no")
    Console().print(table)


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="An embedded model's name.")], as_json: AsJson = False
) -> None:
    """Fetch an embedded model into the cache, and print its folder."""
    from truing.models import builtin

    folder = builtin.ensure_built(name)
    print(json.dumps(builtin.model_facts(name)) if as_json else folder)
