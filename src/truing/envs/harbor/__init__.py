"""Task folders in Harbor's format as an environment: a program works on each, and its own tests judge it."""

from truing.envs.harbor.env import Harbor

__all__ = ["Harbor"]
