"""Where the time of a step goes: seconds by phase, each second in the innermost phase that runs.

All that the doctor has computed is the doctor's: its forward passes are no part of the training's.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PHASES = {
    "sync": "the sampler gets the policy's weights",
    "prefill": "the sampler reads what a turn begins with",
    "decode": "the sampler draws, token by token",
    "world": "worlds and tools answer",
    "reward": "answers are graded",
    "reference": "the reference scores what a term compares with it",
    "value": "the critic says what it expects",
    "forward": "the policy scores what is trained",
    "backward": "gradients",
    "optimizer": "the gradient is clipped, the weights move",
    "record": "numbers and rows are made, and those of the step before written",
    "doctor": "facts are measured for the rules, and the rules judge",
    "other": "all else: templates, masks, advantages",
}
"""Every phase there is, in the order of a step."""

DOCTOR = "doctor"


class PhaseClock:
    """Seconds by phase, counted while it runs."""

    def __init__(self, synchronize: Callable[[], None] = lambda: None) -> None:
        """``settle`` waits for a device: what was asked of it in a phase is then done in that phase."""
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
        """Count the block as ``name``, but for phases within it."""
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
        """Seconds by phase since the last time that somebody took them."""
        self._charge()
        taken = dict(self._seconds)
        self._seconds.clear()
        return taken

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
    """Count the block as ``name``, one of PHASES, where a clock runs."""
    if name not in PHASES:
        raise KeyError(f"{name!r} is no phase; there are {', '.join(PHASES)}")
    clock = _NOW.get()
    if clock is None:
        yield
    else:
        with clock.phase(name):
            yield
