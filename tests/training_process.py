"""Trains with ranks in processes of their own, of which tests kill some."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

from truing.config import resolve, to_toml
from truing.record import RunReader

RECIPE = {
    "name": "killed",
    "stages": ["sft", "grpo"],
    "model": {"name": "tiny", "threads": 1},
    "env": {"name": "arithmetic", "kinds": ["first-3"], "train": 100, "eval": 4, "system": ""},
    "sampling": {"max_new_tokens": 4},
    "sft": {"steps": 2, "batch_size": 6, "learning_rate": 3e-3},
    "grpo": {"steps": 2, "prompts_per_step": 4, "group_size": 4, "learning_rate": 1e-3},
    "eval": {"tasks": 4, "base": False},
    "trainer": {"ranks": 2},
    "checkpoint_every": 1,
}

LIMIT = 300.0
"""Seconds for a run."""


def write_recipe(folder, **changes):
    path = folder / "recipe.toml"
    path.write_text(to_toml(resolve({**RECIPE, **changes})))
    return path


class TrainingProcess:
    """`truing train` with several ranks, and what it prints."""

    def __init__(self, recipe: Path, run: Path, *words: str, **env: str) -> None:
        self.run, self._log = run, run.with_name(f"{run.name}.log")
        command = [sys.executable, "-m", "truing", "train", recipe, "--out", run, *words]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                list(map(str, command)),
                env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", **env},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self._log.read_text()

    def rank(self, rank: int) -> psutil.Process:
        """Return the process of a rank; waits until it has started."""
        return self.wait_for(lambda: self._ranks().get(rank))

    def _ranks(self) -> dict[int, psutil.Process]:
        found = {}
        for process in psutil.process_iter():  # those of Ray are no children of ours
            with contextlib.suppress(psutil.Error, KeyError):
                if str(self.run) in process.cmdline():
                    found[int(process.environ()["RANK"])] = process
        return found

    def wait_for(self, look):
        """Return what ``look`` finds, as soon as that is true."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            with contextlib.suppress(psutil.Error):
                if found := look():
                    return found
            assert self.process.poll() is None, self.printed
            time.sleep(0.05)
        raise AssertionError(self.printed)

    def wait_for_steps(self, count: int) -> None:
        """Return once the run has recorded this many steps."""
        steps = self.run / "steps.jsonl"
        self.wait_for(lambda: steps.exists() and steps.read_bytes().count(b"\n") >= count)

    def wait_for_restart(self, number: int) -> None:
        """Return once the run was restarted this many times."""
        self.wait_for(lambda: f"Restart {number} of" in self.printed)

    def finish(self) -> int:
        """Return the exit code."""
        try:
            return self.process.wait(LIMIT)
        finally:
            if self.process.poll() is None:
                self.process.kill()


def losses(printed: str) -> list[str]:
    """Return the lines that say who was lost."""
    return re.findall(r"^rank \d.*$", printed, re.MULTILINE)


def resumed(run: Path) -> list[tuple[str, int]]:
    return [(e.payload["stage"], e.payload["step"]) for e in RunReader(run).events() if e.kind == "resumed"]
