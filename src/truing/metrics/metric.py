"""The definition of a metric."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One number of a step."""

    name: str
    unit: str
    formula: str
    absent: str  # when it is absent; empty if never
