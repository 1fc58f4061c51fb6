"""Own data: rows of a file or of a data set on the hub, with rewards that the recipe names."""

from truing.envs.dataset.env import Dataset

__all__ = ["Dataset"]
