"""How often a thing is done that must not slow what it looks at."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Throttle:
    """When a thing may be done again, so that it takes at most a share of the time."""

    def __init__(self, share: float, min_interval: float) -> None:
        """``min_interval``: seconds between two calls at least."""
        self.share, self.min_interval = share, min_interval
        self._next = -math.inf

    @property
    def seconds_left(self) -> float:
        """Seconds until it may be done; 0 where it may."""
        return max(0.0, self._next - time.monotonic())

    @contextmanager
    def measure(self) -> Iterator[None]:
        """The block is what is done: the longer it takes, the later it is done again."""
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self._next = ended + max(self.min_interval, (ended - began) / self.share)
