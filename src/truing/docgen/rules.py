"""Generates docs/rules: ``python -m truing.docgen.rules docs/rules``."""

import inspect
import sys
from pathlib import Path

from truing.doctor.rule import KINDS, SECTIONS, TAINTS, Rule
from truing.doctor.rules import RULES

HEAD = "<!-- Written by `python -m truing.docgen.rules docs/rules`; change the rule's module instead. -->\n"


def page(rule: Rule) -> str:
    """Return the page of a rule as Markdown."""
    parts = [f"# {rule.code} {rule.name}", rule.title]
    kind = f"{rule.kind}: {KINDS[rule.kind]}"
    parts.append(
        f"*Kind* {kind}. *Needs* {', '.join(rule.needs)}. *Taints* "
        f"{'; '.join(TAINTS[taint] for taint in rule.taints)}."
    )
    for name in SECTIONS:
        if name in ("References", "Fix"):
            continue
        parts.append(f"## {name}\n\n{rule.section(name)}")
    parts.append(f"## An example that fires\n\n```python\n{inspect.getsource(rule.example).strip()}\n```")
    for lookalike in rule.lookalikes:
        parts.append(f"And one that must not:\n\n```python\n{inspect.getsource(lookalike).strip()}\n```")
    parts.append(f"## Fix\n\n{rule.section('Fix')}")
    parts.append(f"## References\n\n{rule.section('References')}")
    return "\n\n".join(parts) + "\n"


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
