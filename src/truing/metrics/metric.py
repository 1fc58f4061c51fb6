"""What is said of a metric."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One number of a step."""

    name: str
    unit: str
    formula: str
    absent: str  # where it is not recorded; empty where it always is
