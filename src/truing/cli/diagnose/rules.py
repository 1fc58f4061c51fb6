"""`truing rules` and `truing explain`: the doctor's rules."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from truing.errors import RecordError
from truing.utils.format import did_you_mean

PAGES = Path(__file__).parents[2] / "docs"
"""The pages of the documentation; the package has them too."""


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


def explain(
    topic: Annotated[str, typer.Argument(help="A rule's code, such as MSK001, or a page, such as vllm.")],
) -> None:
    """Show the page of a rule (what it detects, how, the fix), or a page of the documentation."""
    console = Console(highlight=False)
    for text in _pages(topic):
        # a wheel has no docs/
        console.print(Markdown(re.sub(r"docs/([a-z-]+)\.md", r"`truing explain \1`", text)))


def _pages(topic: str) -> Iterator[str]:
    """Yield the pages of a topic.

    Raises:
        RecordError: It is neither a page nor a rule; the error names the nearest of both.
    """
    from truing.doctor.rule_page import page
    from truing.doctor.rules import RULES

    names = sorted(path.stem for path in PAGES.glob("[a-z]*.md"))
    if topic.lower() in names:
        yield (PAGES / f"{topic.lower()}.md").read_text(encoding="utf-8")
        return
    rules = [rule for code, rule in RULES.items() if topic and code.startswith(topic.upper())]
    if not rules:
        raise RecordError(
            f"there is no rule and no page {topic!r}",
            expected=f"a code of `truing rules`, or one of {', '.join(names)}",
            remedy=did_you_mean(topic.lower(), names) or did_you_mean(topic.upper(), RULES),
        )
    yield from map(page, rules)
