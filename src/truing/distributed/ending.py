"""How the ranks of a run ended, and whether a rank was lost rather than failed."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from truing.errors import LostRankError

LOST_ANOTHER = LostRankError.exit_code
"""Exit code of a rank that ended because another one did."""


STOPPING = (-signal.SIGTERM, -signal.SIGINT)
"""Exit codes of a process that was asked to stop."""


@dataclass(frozen=True)
class RankEnd:
    """The end of a rank's process; a negative exit code is the signal that ended it."""

    rank: int
    exit_code: int
    stopped: bool = False  # by the launcher, after another rank had ended
    node: str = ""  # where it ran, if there are several

    @property
    def by_signal(self) -> bool:
        """Whether someone other than the launcher ended it by a signal."""
        return self.exit_code < 0 and not self.stopped

    @property
    def place(self) -> str:
        """Return its name, with its node."""
        return f"rank {self.rank}" + (f" on node {self.node}" if self.node else "")

    def __str__(self) -> str:
        return f"{self.place} was ended by {_signal_name(-self.exit_code)}"


@dataclass(frozen=True)
class Ending:
    """The end of all ranks: an exit code, who was lost, or else which rank failed; "" is none."""

    exit_code: int
    lost: str = ""
    failed: str = ""


def ending_of(ends: Sequence[RankEnd]) -> Ending:
    """Return how a run ended; ``ends`` are those of failed ranks, as they were noticed.

    A launcher may end the other ranks by SIGTERM, so that signal is a loss only if it was noticed first, and
    no rank raised an error. A rank that only noticed the loss of another one says nothing of the cause.
    """
    killed = [end for end in ends if end.by_signal and end.exit_code not in STOPPING]
    failed = [end for end in ends if end.exit_code > 0]
    errors = [end for end in failed if end.exit_code != LOST_ANOTHER]
    if not killed and not errors:
        killed = [end for end in ends[:1] if end.exit_code == -signal.SIGTERM and not end.stopped]
    if killed:
        return Ending(128 - killed[0].exit_code, "; ".join(map(str, killed)))
    for end in errors or failed:
        return Ending(end.exit_code, failed=f"{end.place} ended with exit code {end.exit_code}")
    return Ending(128 - ends[0].exit_code if ends else 0)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
