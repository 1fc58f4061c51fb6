"""A mean with its interval, in words that are the same wherever a run is shown."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truing.record.lines import floats_from_json
from truing.words import counted

BOUNDS = ("mean", "low", "high")
COUNTS = ("tasks", "samples")


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval; bounds are NaN where nothing says how far it may be off."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """The mean, and its bounds where it has any."""
        bounds = "" if math.isnan(self.low) else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.mean:.3f}{bounds}"


@dataclass(frozen=True)
class Estimate(Interval):
    """A mean over tasks: how many, and how many answers to each; None where it is not on record."""

    tasks: int | None
    samples: int | None

    @property
    def basis(self) -> str:
        """What it rests on: ``of 200 tasks × 4``; what is not known is not said."""
        if self.tasks is None:
            return ""
        return f"of {counted(self.tasks, 'task')}" + (f" × {self.samples}" if (self.samples or 1) > 1 else "")

    def __str__(self) -> str:
        """The mean, its bounds, and what they rest on."""
        return f"{super().__str__()} {self.basis}".rstrip()


def read_estimate(told: Mapping[str, Any]) -> Estimate:
    """An estimate as an event tells it.

    One of an earlier version may not say how many tasks there were; and where all had earned the same, its
    interval is of no width, which is none.
    """
    numbers = floats_from_json({name: told[name] for name in BOUNDS})
    if numbers["low"] == numbers["high"]:
        numbers |= {"low": math.nan, "high": math.nan}
    return Estimate(**numbers, **{name: told.get(name) for name in COUNTS})
