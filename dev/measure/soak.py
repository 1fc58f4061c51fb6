"""Train `tiny` as an agent for a long time with everything on: memory, threads, files and seconds stay flat.

    python -m dev.measure.soak [--minutes 120] [--rows 40] [--out FOLDER]

An adapter learns by SFT and GRPO to call tools, with a reference, targets of KL and entropy, audits, alerts,
evaluations and checkpoints. It prints a row at each interval and, over the second half of them, the growth
of each column by a straight line. Exit code 1: a column grows by more than its limit, and by more
than three standard errors.
"""

import argparse
import gc
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil

import truing

RECIPE = {
    "name": "soak",
    "stages": ["sft", "grpo"],
    "model": {"name": "tiny", "threads": 1, "device": "cpu"},
    "env": {"name": "workspace", "kinds": ["tiny-file"], "system": "", "train": 512, "eval": 16},
    "chat": {"tool_prompt": "brief"},
    "episode": {"max_turns": 3},
    "sampling": {"max_new_tokens": 16},
    "lora": {"rank": 4, "dropout": 0.1},
    "sft": {"steps": 5, "batch_size": 6, "learning_rate": 3e-3},
    "grpo": {
        "steps": 10**6,
        "prompts_per_step": 2,
        "group_size": 4,
        "learning_rate": 1e-5,
        "objective": "dapo",
    },
    "kl": {"coef": 0.01, "target": 0.01, "horizon": 100},
    "entropy": {"target": 2.0},
    "reference": {"sync_every": 20, "keep": 0.9},
    "eval": {"tasks": 4, "base": False, "every": 50},
    "checkpoint_every": 10,
    "alerts": {"when": ["grad/norm > 1000000"], "command": "true"},
    "doctor": {"stop": False},
}

WARM_UP = 0.5
"""Share of the rows that is left out: caches fill, as that of oneDNN with a primitive per shape."""


@dataclass(frozen=True)
class Row:
    """What is measured at the end of an interval."""

    minutes: float
    steps: int
    memory_mib: float
    threads: int
    files: int
    step_ms: float  # median of the interval's steps


LIMITS = {"memory_mib": 0.05, "threads": 0.01, "files": 0.01, "step_ms": 0.1}
"""Growth over the measured time, as a share of the mean, up to which a column is flat."""


@dataclass(frozen=True)
class Growth:
    """The growth of a column over the measured time, by least squares."""

    column: str
    mean: float
    growth: float
    error: float  # standard error of the growth
    per_step: float

    @property
    def is_flat(self) -> bool:
        """Whether the growth is within the limit, or within noise."""
        return self.growth <= max(LIMITS[self.column] * self.mean, 3 * self.error)


def growth_of(column: str, rows: Sequence[Row]) -> Growth:
    """Fit a straight line to a column; ``rows`` are at least three."""
    x = np.array([row.minutes for row in rows])
    y = np.array([getattr(row, column) for row in rows], float)
    centred, span = x - x.mean(), x[-1] - x[0]
    slope = float(centred @ y / (centred @ centred))
    residual = y - y.mean() - slope * centred
    error = math.sqrt(float(residual @ residual) / (len(x) - 2) / float(centred @ centred))
    steps = rows[-1].steps - rows[0].steps
    return Growth(column, float(y.mean()), slope * span, error * span, slope * span / steps)


class Soak:
    """Measures a run at intervals, and ends it after a time."""

    def __init__(self, minutes: float, rows: int) -> None:
        self.seconds, self.interval = 60 * minutes, 60 * minutes / rows
        self.start = self.last = time.monotonic()
        self.rows: list[Row] = []
        self.steps: list[float] = []
        self.count = 0

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> Literal["stop"] | None:
        """Take an event of the run; return ``"stop"`` at its end."""
        if kind != "step":
            return None
        self.count += 1
        self.steps.append(1000 * sum(facts["record"].seconds.values()))
        now = time.monotonic()
        if now - self.last >= self.interval:
            self.last = now
            self._measure(now)
        return "stop" if now - self.start >= self.seconds else None

    def _measure(self, now: float) -> None:
        gc.collect()
        process = psutil.Process()
        with process.oneshot():
            memory, threads, files = process.memory_info().rss, process.num_threads(), process.num_fds()
        minutes = (now - self.start) / 60
        row = Row(minutes, self.count, memory / 2**20, threads, files, float(np.median(self.steps)))
        self.steps.clear()
        self.rows.append(row)
        if len(self.rows) == 1:
            print("".join(f"{field.name:>12}" for field in fields(Row)))
        print("".join(f"{value:12.6g}" for value in astuple(row)), flush=True)


def main() -> int:
    """Train, print the rows and the growth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--out", type=Path, help="the run directory; by default a temporary one")
    args = parser.parse_args()
    soak = Soak(args.minutes, args.rows)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        truing.train(RECIPE, out=args.out or Path(folder) / "run", on_event=soak)
    measured = soak.rows[int(WARM_UP * len(soak.rows)) :]
    growths = [growth_of(column, measured) for column in LIMITS]
    for each in growths:
        print(
            f"{each.column}: mean {each.mean:.6g}, growth {each.growth:+.4g} ± {each.error:.2g},"
            f" {each.per_step:+.3g} per step: {'flat' if each.is_flat else 'GROWS'}"
        )
    return 0 if all(each.is_flat for each in growths) else 1


if __name__ == "__main__":
    sys.exit(main())
