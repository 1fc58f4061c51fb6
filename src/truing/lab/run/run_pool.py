"""Runs side by side, each in a process of its own, as many as cores and memory allow."""

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
from truing.utils.jsonl import dump_json

STOP_TIMEOUT = 600
"""Seconds that a run may take to end its update, and to write its checkpoint, when it is stopped."""

MEMORY_MARGIN = 1.2
"""A run is begun where so many times the memory of another one is free."""

OUTCOME_FILE = "outcome.json"
"""What a process leaves where it ended by itself: an outcome, an error in words, and what it was asked."""


@dataclass
class RunningProcess:
    """A process at work."""

    name: str
    spec: Mapping[str, Any]
    folder: Path
    slot: int
    process: subprocess.Popen[bytes]
    resumed: bool
    began: float = field(default_factory=time.monotonic)
    peak_bytes: int = 0

    def update_peak(self) -> None:
        """Note the most memory that it held."""
        try:
            self.peak_bytes = max(self.peak_bytes, psutil.Process(self.process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return  # it ended a moment ago

    @property
    def updates(self) -> int:
        """Updates that are on record."""
        steps = self.folder / "run" / "steps.jsonl"
        return steps.read_bytes().count(b"\n") if steps.exists() else 0

    def outcome(self) -> dict[str, Any]:
        """What it left; an error where it was stopped from outside, for then it says nothing of its arm."""
        path = self.folder / OUTCOME_FILE
        found = json.loads(path.read_bytes()) if path.exists() else {}
        if found.get("outcome", "stopped") == "stopped":
            code = self.process.returncode
            signalled = f"it was ended by signal {-code}" if code and code < 0 else self._last_log_line()
            raise RecordError(
                f"{self.name} was stopped",
                got=found.get("error") or signalled,
                expected="a run that ends by itself",
                remedy="free what it lacked (disk, memory); truing lab run then goes on where it was",
            )
        return found

    def _last_log_line(self) -> str:
        log = self.folder / "log.txt"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1] if lines else "nothing was said"


class RunPool:
    """The processes that are at work; leaving it stops them, and each can be gone on with."""

    def __init__(self, folder: Path, places: int, cuda: bool = False, known_peak: int = 0) -> None:
        self.folder, self.slots, self.cuda = folder, places, cuda
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
                remedy="wait for it, or stop it: both would make the same runs",
            ) from error
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._lock.close()

    def stop(self) -> None:
        """Stop what is running as Ctrl-C does, so that it writes a checkpoint."""
        for each in self.running:
            each.process.send_signal(signal.SIGINT)
        for each in self.running:
            try:
                each.process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                each.process.kill()
        self.running = []

    def is_running(self, name: str) -> bool:
        """Whether a process of this name is at work."""
        return any(each.name == name for each in self.running)

    def has_free_slot(self) -> bool:
        """Whether one more can be started: a place is free, and as much memory as another one took."""
        if len(self.running) >= self.slots:
            return False
        if not self.running:
            return True
        grown = [each.peak_bytes for each in self.running if each.updates]
        self.peak_bytes = max([self.peak_bytes, *grown])
        return bool(self.peak_bytes) and psutil.virtual_memory().available > MEMORY_MARGIN * self.peak_bytes

    def start(self, name: str, spec: Mapping[str, Any]) -> RunningProcess:
        """Begin a run, or go on with it."""
        folder = self.folder / name
        resumed = (folder / "run" / "run.json").exists()
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / OUTCOME_FILE).unlink(missing_ok=True)
        write_atomically(folder / "spec.json", dump_json(spec))
        place = min(set(range(self.slots)) - {each.slot for each in self.running})
        with disk_errors(folder), (folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "truing", "lab", "work", str(folder)],
                stdout=log,
                stderr=log,
                env=self._environment(place),
                start_new_session=True,  # Ctrl-C is for the lab, which passes it on once
            )
        self.running.append(RunningProcess(name, spec, folder, place, process, resumed))
        return self.running[-1]

    def pop_ended(self) -> list[RunningProcess]:
        """Those that have ended since the last time."""
        for each in self.running:
            each.update_peak()
        found = [each for each in self.running if each.process.poll() is not None]
        self.running = [each for each in self.running if each not in found]
        return found

    def _environment(self, place: int) -> dict[str, str]:
        """A GPU, or a share of the cores, for each place."""
        if self.cuda:
            return {**os.environ, "CUDA_VISIBLE_DEVICES": str(place)}
        return {**os.environ, "OMP_NUM_THREADS": str(max(1, cores() // self.slots))}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def slots_for(recipe: Recipe) -> tuple[int, bool]:
    """How many runs of a recipe go side by side, and whether they are on GPUs."""
    if recipe.model.device != "cpu":
        import torch

        if torch.cuda.is_available():
            return torch.cuda.device_count(), True
    return max(1, cores() // (recipe.model.threads or 1)), False
