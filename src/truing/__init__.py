"""Truing: trains language-model agents, and proves while it trains that every number is right."""

from truing.api import train
from truing.types import Rollout, Task

__all__ = ["Rollout", "Task", "train"]
__version__ = "0.1.0"
