"""A second computation of the share of turns that begin with the forced prefix."""


def declared_force_rate(step: int, rate: float, steps: int) -> float:
    """Return the share at a step of the stage, from 0: ``rate``, falling evenly to 0 within ``steps``.

    >>> [declared_force_rate(step, 0.5, 4) for step in (0, 1, 4)]
    [0.5, 0.375, 0.0]
    """
    if steps == 0:
        return rate
    return rate * max(steps - step, 0) / steps
