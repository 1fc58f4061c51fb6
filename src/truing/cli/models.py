"""`truing models`: the embedded models, and `truing models get`, which fetches one ahead of time."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from truing.models import store

app = typer.Typer(help="Embedded models: list them, or get one.", invoke_without_command=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON line for machines.")]


@app.callback()
def models(context: typer.Context, as_json: AsJson = False) -> None:
    """List the embedded models: size, licence, and whether they are in the cache."""
    if context.invoked_subcommand is not None:
        return
    facts = [_facts(name) for name in store.EMBEDDED]
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
    folder = store.resolve(name)
    print(json.dumps(_facts(name)) if as_json else folder)


def _facts(name: str) -> dict[str, Any]:
    """What is known of an embedded model; its path is None where the cache lacks it."""
    model = store.embedded(name)
    return {
        "name": name,
        "about": model.about,
        "parameters": model.parameters,
        "licence": model.licence,
        "path": str(store.folder_of(name)) if store.is_cached(name) else None,
    }
