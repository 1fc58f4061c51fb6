"""Limits the share of time that a repeated action takes."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Throttle:
    """Delays an action so that it takes at most a share of the time."""

    def __init__(self, share: float, min_interval: float) -> None:
        """``min_interval``: the minimum of seconds between two runs."""
        self.share, self.min_interval = share, min_interval
        self._next = -math.inf

    @property
    def seconds_left(self) -> float:
        """Seconds until the next run is allowed; 0 if it is."""
        return max(0.0, self._next - time.monotonic())

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Time the block: the longer it takes, the longer the delay."""
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self._next = ended + max(self.min_interval, (ended - began) / self.share)
