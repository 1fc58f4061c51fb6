"""The patterns in the config of an adapter from elsewhere, as the names that they match in a model.

peft searches them with ``re``, which has no time limit.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from peft import LoraConfig
from torch import nn

from truing.errors import ModelError
from truing.utils.patterns import Pattern, PatternError

ALL_LINEAR = "all-linear"
PLAIN = re.compile(r"[\w.]*")
"""Names of layers, whose points are not a danger to a search."""


def without_patterns(config: LoraConfig, model: nn.Module, folder: Path) -> LoraConfig:
    """Return the config with names of the model's layers in place of patterns.

    Raises:
        ModelError: A pattern is none, or its search has no end.
    """
    names = [name for name, _ in model.named_modules() if name]
    changes: dict[str, Any] = {}
    for key in ("target_modules", "exclude_modules"):
        pattern: Any = getattr(config, key)
        if isinstance(pattern, str) and pattern and pattern != ALL_LINEAR:
            changes[key] = _matched(names, pattern, key, folder)
    for key in ("rank_pattern", "alpha_pattern"):
        values: dict[str, int] = getattr(config, key)
        if not all(map(PLAIN.fullmatch, values)):
            # peft takes the first that matches
            changes[key] = {
                name: values[pattern]
                for pattern in reversed(values)
                for name in _matched(names, rf"(.*\.)?({pattern})", key, folder)
            }
    layers: Any = config.layers_pattern or ()
    for pattern in (layers,) if isinstance(layers, str) else layers:
        if not PLAIN.fullmatch(pattern):
            raise _refusal("layers_pattern", pattern, folder, "it is not the name of a list of layers")
    return replace(config, **changes) if changes else config


def _matched(names: Sequence[str], pattern: str, key: str, folder: Path) -> list[str]:
    """Return the names that are matches."""
    try:
        compiled = Pattern(pattern)
        return [name for name in names if compiled.matches_all_of(name)]
    except PatternError as error:
        raise _refusal(key, pattern, folder, str(error)) from error
    except TimeoutError as error:
        raise _refusal(key, pattern, folder, "its search does not end") from error


def _refusal(key: str, pattern: str, folder: Path, why: str) -> ModelError:
    return ModelError(
        "a pattern in the adapter's config cannot be used",
        got=f"{folder}: {key} {pattern!r:.200}: {why}",
        expected="a regular expression for names of layers",
        remedy="name the layers in adapter_config.json",
    )
