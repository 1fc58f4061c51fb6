"""Experiments on runs, and the parents of forks, each found among the folders of the board."""

import math
import os
from pathlib import Path
from typing import Any

from truing.board.data.discovery import FolderIndex
from truing.board.data.run_view import RunView, run_identity
from truing.lab.forks.plan import FOLDER, Plan, fork_reward, read_plan


class Experiments:
    """The experiments under the folder of the board; a finished fork is read once."""

    def __init__(self, folders: FolderIndex) -> None:
        self.folders = folders
        self._rewards: dict[object, float] = {}

    def plan_of(self, run: str) -> Plan | None:
        """Return the plan of the experiment on a run; None without one."""
        folder = self.folders.experiments.get(FOLDER.format(run))
        return None if folder is None else read_plan(folder)

    def fork(self, run: str, fork: str) -> str | None:
        """Return the run of a fork of the experiment on ``run``; None before it is made."""
        name = f"{FOLDER.format(run)}/{fork}"
        return name if name in self.folders.runs else None

    def reward(self, run: str, plan: Plan, fork: str) -> float:
        """Return the reward of a fork after its steps; NaN before."""
        if (name := self.fork(run, fork)) is None:
            return math.nan
        path = self.folders.runs[name]
        key = path, run_identity(path)
        if key not in self._rewards:
            reward = fork_reward(path, plan)
            if math.isnan(reward):
                return reward
            self._rewards[key] = reward
        return self._rewards[key]


def parent_of(run_view: RunView, folders: FolderIndex) -> dict[str, Any] | None:
    """Return of which run a run is a fork, after which step and with which changes; None of others.

    ``run`` is the parent's name on the board, or None if it is not there.
    """
    parent = run_view.run.run_value("parent")
    if parent is None:
        return None
    path = Path(os.path.normpath(run_view.run.run_dir / parent["run"]))
    return {
        "run": next((name for name, each in folders.runs.items() if each == path), None),
        "name": path.name,
        "stage": parent["stage"],
        "step": parent["step"],
        "changes": parent["changes"],
    }
