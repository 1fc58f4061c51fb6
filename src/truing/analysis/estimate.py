"""A mean with its interval, in words that are the same wherever a run is shown."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from truing.utils.format import with_count
from truing.utils.jsonl import floats_from_json

BOUNDS = ("mean", "low", "high")
COUNTS = ("tasks", "samples")

Assumption = Literal["", "normal", "many tasks"]
"""What an interval supposes beyond the bounds of what can be earned: normal values, or many tasks."""

ASSUMPTIONS: tuple[Assumption, ...] = get_args(Assumption)


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval; bounds are NaN where nothing says how far it may be off."""

    mean: float
    low: float
    high: float
    supposes: Assumption = field(default="", kw_only=True)

    def __str__(self) -> str:
        """The mean, and its bounds where it has any."""
        return f"{self.mean:.3f}{self._ends('.3f')}"

    @property
    def signed(self) -> str:
        """The same of a difference, with its signs."""
        return f"{self.mean:+.3f}{self._ends('+.3f')}"

    def _ends(self, form: str) -> str:
        if math.isnan(self.low):
            return ""
        supposed = f" (if {self.supposes})" if self.supposes else ""
        return f" [{self.low:{form}}, {self.high:{form}}]{supposed}"


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
        return f"of {with_count(self.tasks, 'task')}" + (
            f" × {self.samples}" if (self.samples or 1) > 1 else ""
        )

    def __str__(self) -> str:
        """The mean, its bounds with what they suppose, and what they rest on."""
        return f"{super().__str__()} {self.basis}".rstrip()


def read_estimate(payload: Mapping[str, Any]) -> Estimate:
    """The mean reward as the event of an evaluation tells it.

    One of an earlier version may not say how many tasks there were; where all had earned the same, its
    interval is of no width, which is none; and without bounds it is of a bootstrap, which needs many tasks.
    """
    told = payload["estimate"]
    supposes = told.get("supposes", "many tasks" if payload.get("bounds") is None else "")
    found = _estimate(told, supposes)
    return replace(found, low=math.nan, high=math.nan) if found.low == found.high else found


def read_pass_at(payload: Mapping[str, Any]) -> dict[int, Estimate]:
    """pass@k by k as the event of an evaluation tells it; none where each task had one answer."""
    return {int(k): _estimate(told, "") for k, told in payload.get("pass_at", {}).items()}


def pass_at_json(found: Mapping[int, Estimate]) -> dict[str, dict[str, Any]]:
    """pass@k by k, as JSON has it."""
    return {str(k): asdict(estimate) for k, estimate in found.items()}


def pass_at_text(found: Mapping[int, Estimate]) -> str:
    """pass@k in words; "" where each task had one answer."""
    return "  ".join(f"pass@{k} {Interval(e.mean, e.low, e.high)}" for k, e in found.items())


def _estimate(told: Mapping[str, Any], supposes: Assumption) -> Estimate:
    numbers = floats_from_json({name: told[name] for name in BOUNDS})
    return Estimate(**numbers, **{name: told.get(name) for name in COUNTS}, supposes=supposes)
