"""What a log has beside the numbers of its steps: scores of evaluations, and passes over the prompts."""

import math
import re
from collections.abc import Iterable, Mapping

from truing.doctor.importers.log import Point
from truing.doctor.importers.metric_names import without_prefix

SCORE = re.compile(
    r"val-core/.+/mean@\d+|val/test_score/.+"  # verl
    r"|eval[/_]reward"  # TRL
    r"|eval[/_]\w+_pass\d+"  # OpenRLHF
    r"|eval/[^/]+/avg@\d+"  # prime-rl
    r"|validation/accuracy"  # NeMo-RL
    r"|eval/[^/]+/avg_score"  # SkyRL
    r"|test/env/all/reward/total"  # tinker
)
"""Mean scores of held-out tasks, each with the share or the reward that is better if it is larger."""

EPOCH = re.compile(r"(training/|progress/)?epoch")
"""Passes over the prompts so far."""


def evaluations_of(points: Iterable[Point]) -> dict[str, dict[int, float]]:
    """Return the scores of evaluations by name and step."""
    scores = dict[str, dict[int, float]]()
    for point in points:
        for name, value in point.values.items():
            if point.step is not None and math.isfinite(value) and SCORE.fullmatch(without_prefix(name)):
                scores.setdefault(without_prefix(name), {})[point.step] = value
    return {name: dict(sorted(by_step.items())) for name, by_step in scores.items()}


def epochs_of(points: Iterable[Point]) -> Mapping[str, float]:
    """Return the largest number of passes over the prompts, by its name; empty if unknown."""
    passes = dict[str, float]()
    for point in points:
        for name, value in point.values.items():
            if math.isfinite(value) and EPOCH.fullmatch(without_prefix(name)):
                passes[without_prefix(name)] = max(value, passes.get(without_prefix(name), value))
    return passes
