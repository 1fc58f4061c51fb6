"""What the recipe in a run directory starts, imports or contacts, and whether the user agrees."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truing.config.recipe import Recipe
from truing.errors import RecordError

ACTIONS = {
    "command": "starts",
    "python": "starts",
    "arguments": "starts vLLM with",
    "taskset": "imports",
    "url": "connects to",
    "base_url": "connects to",
    "servers": "connects to",
    "api_key_env": "sends the key in the environment variable",
}
"""What Truing does with the value of a key of ``[env]``, ``[engine]`` or ``[eval]``."""


def require_trust(recipe: Recipe, run: Path, trust: bool) -> None:
    """Raise RecordError unless the recipe of a run stays within Truing, or the user trusts the run."""
    if trust or not (actions := list(outside_actions(recipe))):
        return
    raise RecordError(
        f"the recipe in {run} imports, starts or contacts something that is not part of Truing",
        got="; ".join(actions),
        expected="a recipe that starts and imports nothing, unless you trust the run",
        remedy="if this run is yours or you trust it, repeat the command with --trust (trust=True in Python)",
    )


def outside_actions(recipe: Recipe) -> Iterator[str]:
    """Yield what environment, engine and grader of a recipe start, import and contact, with the key."""
    grader = {"grader": recipe.eval.grader}
    for section, table in (
        ("env", recipe.env),
        ("engine", recipe.engine.model_dump(mode="json")),
        ("eval", grader),
    ):
        for key, value in _values(section, table):
            name = key.rpartition(".")[2]
            if name in ACTIONS:
                yield f"{ACTIONS[name]} {_shown(value)} ({key})"
            elif isinstance(value, str) and _is_import(value):
                yield f"imports {value} ({key})"


def _values(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the set values of a table by dotted key; those of a key in ACTIONS whole."""
    if not value:
        return
    name = key.rpartition(".")[2]
    if isinstance(value, Mapping) and (name not in ACTIONS or name == "servers"):  # of MCP: a table for each
        for inner, each in value.items():
            yield from _values(f"{key}.{inner}", each)
    elif name not in ACTIONS and isinstance(value, list | tuple):
        for each in value:
            yield from _values(key, each)
    else:
        yield key, value


def _is_import(value: str) -> bool:
    """Return whether a value has the form ``module:name`` or ``path.py:name``."""
    module, colon, name = value.partition(":")
    if module.endswith(".py"):
        return name.isidentifier()
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={each}" for name, each in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
