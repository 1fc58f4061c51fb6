"""Seconds of a step by phase; each second counts for the innermost running phase.

Within the phase ``doctor`` every inner phase counts as ``doctor``: its forward passes are not training's.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PHASES = {
    "sync": "copy the policy's weights to the sampler",
    "prefill": "the sampler processes the context of a turn",
    "decode": "the sampler samples, token by token",
    "environment": "environments and tools run",
    "reward": "reward functions run",
    "reference": "forward passes of the reference model",
    "value": "forward passes of the critic",
    "forward": "forward passes of the policy",
    "backward": "backward passes",
    "optimizer": "gradient clipping and the optimizer step",
    "record": "compute metrics and rows, and write those of the previous step",
    "doctor": "audits and rules",
    "other": "everything else: templates, masks, advantages",
}
"""All phases, in the order of a step."""

DOCTOR = "doctor"


class PhaseClock:
    """Counts seconds by phase."""

    def __init__(self, synchronize: Callable[[], None] = lambda: None) -> None:
        """``synchronize`` waits for a device, so that work started in a phase ends in that phase."""
        self._synchronize = synchronize
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the block, with every ``phase`` within it."""
        token = _NOW.set(self)
        try:
            with self.phase("other"):
                yield
        finally:
            _NOW.reset(token)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the block as ``name``, except for phases within it."""
        self._charge()
        self._open.append(DOCTOR if DOCTOR in self._open else name)
        try:
            yield
        finally:
            try:
                self._charge()
            finally:
                self._open.pop()

    def pop_seconds(self) -> dict[str, float]:
        """Return the seconds by phase since the last call, and reset them."""
        self._charge()
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds

    def _charge(self) -> None:
        """Count the time since the last charge for the innermost open phase."""
        self._synchronize()
        now = time.perf_counter()
        if self._open:
            self._seconds[self._open[-1]] += now - self._since
        self._since = now


_NOW: ContextVar[PhaseClock | None] = ContextVar("clock", default=None)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Count the block as ``name``, one of PHASES, if a clock runs."""
    if name not in PHASES:
        raise KeyError(f"{name!r} is not a phase; phases are {', '.join(PHASES)}")
    clock = _NOW.get()
    if clock is None:
        yield
    else:
        with clock.phase(name):
            yield
