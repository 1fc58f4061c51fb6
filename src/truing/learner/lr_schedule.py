"""The schedule of the learning rate: warm-up, then constant, linear or cosine."""

import math

from truing.config import OptimizerConfig


def learning_rate(step: int, steps: int, peak: float, cfg: OptimizerConfig) -> float:
    """Return the rate of step ``step`` (from 0) of ``steps``: linear warm-up, then the schedule.

    >>> cfg = OptimizerConfig(warmup_steps=2, schedule="linear")
    >>> [learning_rate(step, 4, 1.0, cfg) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if step < cfg.warmup_steps:
        return peak * (step + 1) / cfg.warmup_steps
    progress = (step - cfg.warmup_steps) / max(1, steps - cfg.warmup_steps)
    if cfg.schedule == "linear":
        return peak * (1 - progress)
    if cfg.schedule == "cosine":
        return peak * (1 + math.cos(math.pi * progress)) / 2
    return peak
