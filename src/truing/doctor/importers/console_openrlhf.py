"""OpenRLHF's console: a line per step with all its metrics.

``PPOTrainer.fit`` logs ``Global step N: {…}`` (OpenRLHF 0.11, openrlhf/trainer/ppo_trainer.py, and
ppo_trainer_async.py), a dict of floats as Python prints it. W&B and TensorBoard get the same names with the
prefix ``train/``.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from truing.doctor.importers.python_literals import pairs

if TYPE_CHECKING:
    from truing.doctor.importers.console import Line

LINE = re.compile(r"Global step (\d+): \{(.*)\}")


def records(lines: "Sequence[Line]") -> list[tuple[str, dict[str, Any]]]:
    """Return the steps of a console log."""
    matches = ((line, LINE.search(line.text)) for line in lines)
    return [(line.where, {**pairs(hit[2]), "step": int(hit[1])}) for line, hit in matches if hit]
