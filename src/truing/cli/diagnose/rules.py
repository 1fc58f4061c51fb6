"""`truing rules` and `truing explain`: the doctor's rules."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table


def rules(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List every rule of the doctor."""
    from truing.doctor.rule import KINDS
    from truing.doctor.rules import RULES

    if as_json:
        fields = ("code", "name", "kind", "title", "needs", "taints")
        print(json.dumps([{name: getattr(rule, name) for name in fields} for rule in RULES.values()]))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("code", "kind", "detects"):
        table.add_column(column, no_wrap=column != "detects")
    for code, rule in RULES.items():
        table.add_row(code, rule.kind, rule.title)
    console = Console(highlight=False)
    console.print(table)
    console.print("; ".join(f"{kind} {text}" for kind, text in KINDS.items()), style="dim")


def explain(code: Annotated[str, typer.Argument(help="A rule's code, such as MSK001.")]) -> None:
    """Show a rule's page: what it detects, why training shows no error, how it measures, the fix."""
    from truing.docgen.rules import page
    from truing.doctor.diagnosis import select_rules

    for rule in select_rules(select=[code.upper()]):
        Console(highlight=False).print(Markdown(page(rule)))
