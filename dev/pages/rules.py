"""Generates docs/rules: ``python -m dev.pages.rules docs/rules``."""

import sys
from pathlib import Path

from truing.doctor.rule import KINDS
from truing.doctor.rule_page import page
from truing.doctor.rules import RULES

HEAD = "<!-- Written by `python -m dev.pages.rules docs/rules`; change the rule's module instead. -->\n"


def index() -> str:
    """Return the page with a table of all rules."""
    rows = [
        f"| [{code}]({code}.md) | {rule.name} | {rule.kind} | {rule.title} |" for code, rule in RULES.items()
    ]
    kinds = "; ".join(f"{kind}: {text}" for kind, text in KINDS.items())
    return "\n".join(
        [
            "# Rules",
            "",
            f"{len(RULES)} rules. {kinds}.",
            "",
            "| code | name | kind | what it finds |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def pages() -> dict[str, str]:
    """Return the content of every file of the folder, by name."""
    rule_pages = {f"{code}.md": HEAD + page(rule) for code, rule in RULES.items()}
    return {"README.md": HEAD + index(), **rule_pages}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
