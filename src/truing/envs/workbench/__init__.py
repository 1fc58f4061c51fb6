"""WorkBench's office tasks, over a folder of its data."""

from truing.envs.workbench.env import WorkBench, WorkBenchConfig

__all__ = ["WorkBench", "WorkBenchConfig"]
