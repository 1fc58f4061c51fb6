"""The retail tasks of tau-bench, over a folder of its data."""

from truing.envs.taubench.env import TauBench, TauBenchConfig

__all__ = ["TauBench", "TauBenchConfig"]
