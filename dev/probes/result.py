"""The measurements of a probe, and their bounds."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """One number, and its bounds for a correct trainer; NaN is outside any."""

    name: str
    got: float
    low: float = -math.inf
    high: float = math.inf

    @property
    def holds(self) -> bool:
        """Return whether the number is within its bounds."""
        return self.low <= self.got <= self.high

    @property
    def expected(self) -> str:
        """Return the bounds as text."""
        if self.low == self.high:
            return f"{self.low:g}"
        if math.isinf(self.low):
            return f"≤ {self.high:g}"
        return f"≥ {self.low:g}" if math.isinf(self.high) else f"{self.low:g} … {self.high:g}"


@dataclass(frozen=True)
class ProbeOutcome:
    """A probe of one algorithm."""

    probe: str
    algo: str
    findings: tuple[Measurement, ...]
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Return whether all its numbers are within their bounds; a probe without any has not passed."""
        return bool(self.findings) and all(finding.holds for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON; JSON has no infinity, so an open bound is null."""
        return {
            "probe": self.probe,
            "algo": self.algo,
            "expected": {f.name: [_finite(f.low), _finite(f.high)] for f in self.findings},
            "got": {f.name: _finite(f.got) for f in self.findings},
            "pass": self.passed,
        }


def exactly(name: str, got: float, expected: float = 0.0) -> Measurement:
    """Return a measurement that must equal a value, to the last bit."""
    return Measurement(name, got, expected, expected)


def near(name: str, got: float, expected: float, tolerance: float) -> Measurement:
    """Return a measurement that must equal a value up to rounding."""
    return Measurement(name, got, expected - tolerance, expected + tolerance)


def at_least(name: str, got: float, low: float) -> Measurement:
    """Return a measurement with a lower bound."""
    return Measurement(name, got, low=low)


def at_most(name: str, got: float, high: float) -> Measurement:
    """Return a measurement with an upper bound."""
    return Measurement(name, got, high=high)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
