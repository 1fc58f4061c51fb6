"""The pages of the rules of the doctor."""

import inspect
from typing import Any

from truing.doctor.rule import KINDS, SECTIONS, TAINTS
from truing.doctor.rules import RULES
from truing.errors import BadRequestError


def index() -> list[dict[str, str]]:
    """Return every rule in short."""
    return [
        {"code": code, "name": rule.name, "kind": rule.kind, "means": KINDS[rule.kind], "title": rule.title}
        for code, rule in RULES.items()
    ]


def page(code: str) -> dict[str, Any]:
    """Return a rule with its sections and its example."""
    if code not in RULES:
        raise BadRequestError(f"there is no rule {code[:50]}", remedy="the list of rules names them all")
    rule = RULES[code]
    return {
        "code": code,
        "name": rule.name,
        "title": rule.title,
        "kind": f"{rule.kind}: {KINDS[rule.kind]}",
        "needs": list(rule.needs),
        "taints": [TAINTS[taint] for taint in rule.taints],
        "sections": [{"name": name, "text": rule.section(name)} for name in SECTIONS],
        "example": inspect.getsource(rule.example).strip(),
    }
