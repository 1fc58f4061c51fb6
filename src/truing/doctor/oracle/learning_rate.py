"""A second computation of a step's learning rate."""

import math


def declared_rate(step: int, peak: float, steps: int, warmup: int, schedule: str) -> float:
    """Return linear warm-up from peak/warmup to the peak, then the schedule down to 0 after ``steps``.

    Args:
        step: of the stage, from 0.
        peak: the declared learning rate.
        steps: of the stage.
        warmup: steps of warm-up.
        schedule: constant, linear, or cosine.
    """
    if step < warmup:
        return peak / warmup * (step + 1)
    left = (steps - step) / max(steps - warmup, 1)
    share = {"constant": 1.0, "linear": left, "cosine": math.sin(math.pi / 2 * left) ** 2}[schedule]
    return peak * share
