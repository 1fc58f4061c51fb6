"""Truing trains language-model agents and proves during training that every number is right."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truing.api import check, evaluate, train
    from truing.envs.tools import ToolEpisode, ToolError, tool
    from truing.rewards import PerTurn
    from truing.types.message import AssistantMessage, ToolCall
    from truing.types.rollout import Rollout, Task

__all__ = [
    "AssistantMessage",
    "PerTurn",
    "Rollout",
    "Task",
    "ToolCall",
    "ToolEpisode",
    "ToolError",
    "check",
    "evaluate",
    "tool",
    "train",
]
__version__ = "0.1.0"

# peft imports bitsandbytes, which on a CPU advises to install kernels whose products have other bits
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)

_HOMES = {
    "check": "truing.api",
    "evaluate": "truing.api",
    "train": "truing.api",
    "AssistantMessage": "truing.types.message",
    "ToolCall": "truing.types.message",
    "ToolEpisode": "truing.envs.tools",
    "ToolError": "truing.envs.tools",
    "tool": "truing.envs.tools",
    "PerTurn": "truing.rewards",
    "Rollout": "truing.types.rollout",
    "Task": "truing.types.rollout",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use: torch takes seconds that ``truing --help`` must not cost."""
    if name not in _HOMES:
        raise AttributeError(f"module 'truing' has no attribute {name!r}")
    globals()[name] = getattr(import_module(_HOMES[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return [*__all__, "__version__"]
