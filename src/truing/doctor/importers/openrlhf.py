"""OpenRLHF's console: a line per step with all its metrics.

``PPOTrainer.fit`` logs ``Global step N: {…}`` (OpenRLHF 0.11, openrlhf/trainer/ppo_trainer.py, and
ppo_trainer_async.py), a dict of floats as Python prints it. What it tells W&B and TensorBoard has the same
names behind ``train/``.
"""

import re
from pathlib import Path

from truing.doctor.importers.log import Log, points
from truing.errors import RecordError

LINE = re.compile(r"Global step (\d+): \{(.*)\}")
PAIR = re.compile(r"'([^']+)': (-?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf))(?=[,}]|$)")


def read(path: Path) -> Log:
    """The steps of a console log."""
    told = []
    for count, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := LINE.search(line):
            values = {name: float(value) for name, value in PAIR.findall(found[2])}
            told.append((f"{path}, line {count},", {**values, "step": int(found[1])}))
    if not told:
        raise RecordError(
            f"{path} is no log of OpenRLHF",
            got="no line with its metrics",
            expected="lines with `Global step N: {…}`",
            remedy="keep what the run prints, or name what W&B or TensorBoard have of it",
        )
    return Log("OpenRLHF's console", points(told))
