"""Parallel runs, each in its own process, as many as cores and memory allow."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from truing.config import Recipe
from truing.errors import LabError, RecordError
from truing.utils.atomic_files import disk_errors, write_atomically
from truing.utils.cores import usable_cores
from truing.utils.end_with_parent import child_variables
from truing.utils.jsonl import dump_json

STOP_TIMEOUT = 600
"""Seconds that a stopped run may take to end its step and write its checkpoint."""

MEMORY_MARGIN = 1.2
"""A run starts if this many times the memory of another run is free."""

OUTCOME_FILE = "outcome.json"
"""File that a process writes at its end: an outcome, an error text, and its results."""


@dataclass
class RunningProcess:
    """A running process."""

    name: str
    spec: Mapping[str, Any]
    folder: Path
    slot: int
    process: subprocess.Popen[bytes]
    resumed: bool
    began: float = field(default_factory=time.monotonic)
    peak_bytes: int = 0

    def update_peak(self) -> None:
        """Update its peak memory."""
        try:
            self.peak_bytes = max(self.peak_bytes, psutil.Process(self.process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return  # it has just ended

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        path = self.folder / "run" / "steps.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def outcome(self) -> dict[str, Any]:
        """Return its results; raise if it was stopped from outside, which tells nothing about its arm."""
        path = self.folder / OUTCOME_FILE
        outcome = json.loads(path.read_bytes()) if path.exists() else {}
        if outcome.get("outcome", "stopped") == "stopped":
            code = self.process.returncode
            reason = f"it was ended by signal {-code}" if code and code < 0 else self._last_log_line()
            raise RecordError(
                f"{self.name} was stopped",
                got=outcome.get("error") or reason,
                expected="a run that ends by itself",
                remedy="free disk or memory, whichever it lacked; truing lab run then resumes",
            )
        return outcome

    def _last_log_line(self) -> str:
        log = self.folder / "log.txt"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1] if lines else "no log output"


class RunPool:
    """The running processes of a lab; leaving the context stops them, and each can be resumed."""

    def __init__(self, folder: Path, slots: int, cuda: bool = False, known_peak: int = 0) -> None:
        self.folder, self.slots, self.cuda = folder, slots, cuda
        self.running: list[RunningProcess] = []
        self.peak_bytes = known_peak

    def __enter__(self) -> "RunPool":
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise LabError(
                "another truing lab run is at work in this lab",
                remedy="wait for it, or stop it: both would do the same runs",
            ) from error
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._lock.close()

    def stop(self) -> None:
        """Stop all runs as Ctrl-C does, so that they write checkpoints."""
        for each in self.running:
            each.process.send_signal(signal.SIGINT)
        for each in self.running:
            try:
                each.process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                each.process.kill()
        self.running = []

    def is_running(self, name: str) -> bool:
        """Whether a process of this name is running."""
        return any(each.name == name for each in self.running)

    def has_free_slot(self) -> bool:
        """Whether one more can start: a slot is free, and the memory of another run."""
        if len(self.running) >= self.slots:
            return False
        if not self.running:
            return True
        peaks = [each.peak_bytes for each in self.running if each.steps]
        self.peak_bytes = max([self.peak_bytes, *peaks])
        return bool(self.peak_bytes) and psutil.virtual_memory().available > MEMORY_MARGIN * self.peak_bytes

    def start(self, name: str, spec: Mapping[str, Any]) -> RunningProcess:
        """Start a run, or resume it."""
        folder = self.folder / name
        resumed = (folder / "run" / "run.json").exists()
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / OUTCOME_FILE).unlink(missing_ok=True)
        write_atomically(folder / "spec.json", dump_json(spec))
        slot = min(set(range(self.slots)) - {each.slot for each in self.running})
        with disk_errors(folder), (folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "truing", "lab", "work", str(folder)],
                stdout=log,
                stderr=log,
                env=self._environment(slot),
                start_new_session=True,  # Ctrl-C goes to the lab, which passes it on once
            )
        self.running.append(RunningProcess(name, spec, folder, slot, process, resumed))
        return self.running[-1]

    def pop_ended(self) -> list[RunningProcess]:
        """Remove and return the processes that have ended."""
        for each in self.running:
            each.update_peak()
        ended = [each for each in self.running if each.process.poll() is not None]
        self.running = [each for each in self.running if each not in ended]
        return ended

    def _environment(self, slot: int) -> dict[str, str]:
        """Return the environment variables of a slot: its GPU, or its share of the cores."""
        if self.cuda:
            return {**os.environ, **child_variables(), "CUDA_VISIBLE_DEVICES": str(slot)}
        threads = max(1, usable_cores() // self.slots)
        return {**os.environ, **child_variables(), "OMP_NUM_THREADS": str(threads)}


def slots_for(recipe: Recipe) -> tuple[int, bool]:
    """Return how many runs of a recipe go in parallel, and whether they use GPUs."""
    if recipe.model.device != "cpu":
        import torch

        if torch.cuda.is_available():
            return torch.cuda.device_count(), True
    return max(1, usable_cores() // (recipe.model.threads or 1)), False
