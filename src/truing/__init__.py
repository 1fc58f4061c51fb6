"""Truing trains language-model agents and proves during training that every number is right."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truing.analysis.estimate import Estimate
    from truing.analysis.evaluation import Evaluation
    from truing.analysis.train_result import TrainResult
    from truing.api import check, evaluate, train
    from truing.checks import CheckReport
    from truing.config import Recipe
    from truing.engines.served.prove import prove
    from truing.engines.served.sync_proof import SyncProof
    from truing.envs.base import Env, Episode
    from truing.envs.program import Program
    from truing.envs.tools import Tool, ToolEpisode, ToolError, tool
    from truing.errors import TruingError
    from truing.lab.forks.run import experiment
    from truing.rewards import PerTurn
    from truing.types.message import AssistantMessage, ToolCall, ToolSpec
    from truing.types.rollout import Rollout, Task, Turn
    from truing.types.status import Status

__all__ = [
    "AssistantMessage",
    "CheckReport",
    "Env",
    "Episode",
    "Estimate",
    "Evaluation",
    "PerTurn",
    "Program",
    "Recipe",
    "Rollout",
    "Status",
    "SyncProof",
    "Task",
    "Tool",
    "ToolCall",
    "ToolEpisode",
    "ToolError",
    "ToolSpec",
    "TrainResult",
    "TruingError",
    "Turn",
    "check",
    "evaluate",
    "experiment",
    "prove",
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
    "experiment": "truing.lab.forks.run",
    "prove": "truing.engines.served.prove",
    "SyncProof": "truing.engines.served.sync_proof",
    "AssistantMessage": "truing.types.message",
    "ToolCall": "truing.types.message",
    "ToolSpec": "truing.types.message",
    "Env": "truing.envs.base",
    "Episode": "truing.envs.base",
    "Program": "truing.envs.program",
    "Tool": "truing.envs.tools",
    "ToolEpisode": "truing.envs.tools",
    "ToolError": "truing.envs.tools",
    "tool": "truing.envs.tools",
    "PerTurn": "truing.rewards",
    "Rollout": "truing.types.rollout",
    "Task": "truing.types.rollout",
    "Turn": "truing.types.rollout",
    "Status": "truing.types.status",
    "Recipe": "truing.config",
    "CheckReport": "truing.checks",
    "Estimate": "truing.analysis.estimate",
    "Evaluation": "truing.analysis.evaluation",
    "TrainResult": "truing.analysis.train_result",
    "TruingError": "truing.errors",
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
