"""A mean with its interval, and its text for all reports."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from truing.record.events import Assumption
from truing.utils.format import with_count
from truing.utils.jsonl import floats_from_json

BOUNDS = ("mean", "low", "high")
COUNTS = ("tasks", "samples")


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval; bounds are NaN if unknown."""

    mean: float
    low: float
    high: float
    supposes: Assumption = field(default="", kw_only=True)

    def __str__(self) -> str:
        """Return the mean, and its bounds if known."""
        return f"{self.mean:.3f}{self._bounds_text('.3f')}"

    @property
    def signed(self) -> str:
        """The same with signs, for a difference."""
        return f"{self.mean:+.3f}{self._bounds_text('+.3f')}"

    def _bounds_text(self, form: str) -> str:
        if math.isnan(self.low):
            return ""
        assumption = f" (assumes {self.supposes})" if self.supposes else ""
        return f" [{self.low:{form}}, {self.high:{form}}]{assumption}"


@dataclass(frozen=True)
class Estimate(Interval):
    """A mean over tasks, with their number and the rollouts per task; None if not recorded."""

    tasks: int | None
    samples: int | None

    @property
    def basis(self) -> str:
        """Its sample size: ``of 200 tasks × 4``; "" if unknown."""
        if self.tasks is None:
            return ""
        return f"of {with_count(self.tasks, 'task')}" + (
            f" × {self.samples}" if (self.samples or 1) > 1 else ""
        )

    def __str__(self) -> str:
        """Return the mean, its bounds with their assumption, and the sample size."""
        return f"{super().__str__()} {self.basis}".rstrip()


def read_estimate(payload: Mapping[str, Any]) -> Estimate:
    """Return the mean reward of the event of an evaluation.

    Earlier versions may lack the number of tasks. An interval without width, from equal rewards, is dropped.
    Without bounds an interval of those versions is a bootstrap, which needs many tasks.
    """
    facts = payload["estimate"]
    supposes = facts.get("supposes", "many tasks" if payload.get("bounds") is None else "")
    estimate = _estimate(facts, supposes)
    return replace(estimate, low=math.nan, high=math.nan) if estimate.low == estimate.high else estimate


def read_second_estimate(payload: Mapping[str, Any]) -> Estimate | None:
    """Return the second grader's mean of the event of an evaluation; None without one."""
    facts = payload.get("second_estimate")
    return None if facts is None else _estimate(facts, facts["supposes"])


def read_pass_at(payload: Mapping[str, Any]) -> dict[int, Estimate]:
    """Return pass@k by k of the event of an evaluation; empty with one rollout per task."""
    return {int(k): _estimate(facts, "") for k, facts in payload.get("pass_at", {}).items()}


def pass_at_json(pass_at: Mapping[int, Estimate]) -> dict[str, dict[str, Any]]:
    """Return pass@k by k as JSON."""
    return {str(k): asdict(estimate) for k, estimate in pass_at.items()}


def pass_at_text(pass_at: Mapping[int, Estimate]) -> str:
    """Return pass@k as text; "" with one rollout per task."""
    return "  ".join(f"pass@{k} {Interval(e.mean, e.low, e.high)}" for k, e in pass_at.items())


def _estimate(facts: Mapping[str, Any], supposes: Assumption) -> Estimate:
    numbers = floats_from_json({name: facts[name] for name in BOUNDS})
    tasks, samples = (facts.get(name) for name in COUNTS)
    return Estimate(**numbers, tasks=tasks, samples=samples, supposes=supposes)
