"""The budget of one kind of audit."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class AuditBudget:
    """Budget of one kind of audit, in forwards of a token; in seconds with another trainer."""

    share: float  # of the elapsed cost
    minimum: float = 0.0  # always allowed
    spent: float = 0.0
    last_cost: float = 0.0

    def due(self, elapsed: float) -> bool:
        """Return whether another audit, as costly as the last, is within the budget; the first always is."""
        limit = max(self.minimum, self.share * elapsed)
        return self.last_cost == 0 or self.share == 1 or self.spent + self.last_cost <= limit

    def spend(self, cost: float) -> None:
        """Add the cost of an audit."""
        self.last_cost = cost
        self.spent += cost

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the seconds of the block."""
        start = time.perf_counter()
        yield
        self.spend(time.perf_counter() - start)
