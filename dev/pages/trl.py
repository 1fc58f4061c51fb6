"""Makes the tables of ``docs/trl.md``: ``python -m dev.pages.trl > docs/trl.md``."""

from collections.abc import Iterator
from pathlib import Path

from truing.trl.arguments.configs import CONFIG_DEFAULTS
from truing.trl.arguments.fields import FIELDS, Kind

TEMPLATE = Path(__file__).parent / "trl_page.md"
"""The page without its tables."""


def page() -> str:
    """Return the page."""
    text = TEMPLATE.read_text(encoding="utf-8")
    kinds: dict[str, Kind] = {"TRANSLATED": "translated", "NO_EFFECT": "no effect", "REFUSED": "refused"}
    for mark, kind in kinds.items():
        text = text.replace(f"{{{mark}}}", _folded(kind))
    return text


def _folded(kind: Kind) -> str:
    """Return the table of the arguments with one kind of answer, to be unfolded."""
    count = sum(answer.kind == kind for answer in FIELDS.values())
    table = "\n".join(_rows(kind))
    return f'<details markdown="1">\n<summary>{count} arguments</summary>\n\n{table}\n\n</details>'


def _rows(kind: Kind) -> Iterator[str]:
    """Yield the lines of the table of one kind of answer; arguments of one reason share a row."""
    reasons: dict[str, list[str]] = {}
    for name, answer in FIELDS.items():
        if answer.kind == kind:
            reasons.setdefault(answer.text, []).append(name)
    if kind == "translated":
        yield "| argument | of | becomes |"
        yield "|---|---|---|"
        for text, (name, *_) in reasons.items():
            yield f"| `{name}` | {_configs(name)} | {text} |"
        return
    yield "| reason | arguments |"
    yield "|---|---|"
    for text, names in reasons.items():
        yield f"| {text[0].upper()}{text[1:]}. | {', '.join(f'`{name}`' for name in sorted(names))} |"


def _configs(name: str) -> str:
    """Return the trainers whose config has an argument."""
    having = [config.removesuffix("Config") for config, names in CONFIG_DEFAULTS.items() if name in names]
    return "all" if len(having) == len(CONFIG_DEFAULTS) else ", ".join(having)


if __name__ == "__main__":
    print(page(), end="")
