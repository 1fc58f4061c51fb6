"""A recipe without its secrets, for pages, reports and trackers; the run directory keeps the values."""

import re
from collections.abc import Mapping
from typing import Any

from truing.errors import redact

WEBHOOK_LINE = re.compile(
    r"""^([ \t]*(?:alerts\s*\.\s*)?webhook[ \t]*+=[ \t]*+)(?!["']\$|""$|''$).*$""", re.MULTILINE
)
"""The line of a recipe with the address of a webhook, not with the name of an environment variable."""

HIDDEN = "…"


def without_secrets(value: Any, key: str = "") -> Any:
    """Return a table or value of a recipe, whose (dotted) key is given, without secrets."""
    if isinstance(value, Mapping):
        return {name: without_secrets(each, f"{key}.{name}") for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each, key) for each in value]
    if not isinstance(value, str):
        return value
    is_address = key.endswith("alerts.webhook") and value and not value.startswith("$")
    return HIDDEN if is_address else redact(value)


def toml_without_secrets(text: str) -> str:
    """Return the text of a recipe without secrets."""
    return redact(WEBHOOK_LINE.sub(rf'\1"{HIDDEN}"', text))
