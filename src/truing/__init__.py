"""Truing: trains language-model agents, and proves while it trains that every number is right."""

from truing.api import check, evaluate, train
from truing.envs.tools import ToolError, tool
from truing.rewards import PerTurn
from truing.types import Rollout, Task

__all__ = ["PerTurn", "Rollout", "Task", "ToolError", "check", "evaluate", "tool", "train"]
__version__ = "0.1.0"
