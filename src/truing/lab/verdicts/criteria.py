"""Whether the pairs meet a criterion that was declared before them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from truing.lab.stats import e_process
from truing.lab.stats.pairs import Pair
from truing.lab.store.hypothesis_file import Criterion

State = Literal["met", "contradicted", "open"]
Pairs = Mapping[str, Sequence[Pair]]
Within = Mapping[str, float]
"""By metric, the bound on the size of a pair's difference; without metrics whose bound is unknown."""


@dataclass(frozen=True)
class CriterionState:
    """A criterion, and its state by the pairs."""

    text: str
    state: State
    confirms: bool  # or refutes


def is_met(criterion: Criterion, pairs: Pairs, within: Within, error: float, *, confirms: bool) -> bool:
    """Whether the criterion is proven, with error probability ``error``.

    If a criterion names no arm, any arm may confirm it, each with its share of the error; all arms must
    refute it, each with the whole error.
    """
    arms = _arms(criterion, pairs)
    share = error / len(arms) if confirms else error
    up = criterion.above is not None
    proven = [_is_proven(criterion, pairs[arm], within, share, up=up) for arm in arms]
    return any(proven) if confirms else all(proven)


def is_contradicted(
    criterion: Criterion, pairs: Pairs, within: Within, error: float, *, confirms: bool
) -> bool:
    """Whether the opposite of the criterion is proven."""
    arms = _arms(criterion, pairs)
    share = error if confirms else error / len(arms)
    up = criterion.above is None
    proven = [_is_proven(criterion, pairs[arm], within, share, up=up) for arm in arms]
    return all(proven) if confirms else any(proven)


def judge_criterion(
    criterion: Criterion, pairs: Pairs, within: Within, error: float, *, confirms: bool
) -> CriterionState:
    """Return the criterion with its state."""
    if is_met(criterion, pairs, within, error, confirms=confirms):
        state: State = "met"
    else:
        state = (
            "contradicted" if is_contradicted(criterion, pairs, within, error, confirms=confirms) else "open"
        )
    return CriterionState(str(criterion), state, confirms)


def is_futile(criterion: Criterion, pairs: Pairs, within: Within, seeds: int, error: float) -> bool:
    """Whether no remaining pair can settle the criterion."""
    return all(
        e_process.is_futile(
            _differences(criterion, pairs[arm]), criterion.bound, seeds, error, within.get(criterion.metric)
        )
        for arm in _arms(criterion, pairs)
    )


def _arms(criterion: Criterion, pairs: Pairs) -> Sequence[str]:
    return [criterion.arm] if criterion.arm else list(pairs)


def _differences(criterion: Criterion, pairs: Sequence[Pair]) -> list[float]:
    return [pair.difference(criterion.metric) for pair in pairs]


def _is_proven(
    criterion: Criterion, pairs: Sequence[Pair], within: Within, error: float, *, up: bool
) -> bool:
    """Whether the bets prove it and the mean agrees: many small gains may hide a rare, larger loss."""
    differences = _differences(criterion, pairs)
    is_beyond = e_process.is_above if up else e_process.is_below
    if not is_beyond(differences, criterion.bound, error, within.get(criterion.metric)):
        return False
    mean = float(np.mean(differences))
    return mean > criterion.bound if up else mean < criterion.bound
