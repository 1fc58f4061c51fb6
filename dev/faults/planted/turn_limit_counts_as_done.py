"""Attempts cut by the limit of turns count as done, demonstrations too."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import TOOLS
from truing.types.status import EndedBy, Status


def _wrong(real):
    def end(attempt, status, by, error=""):
        return real(attempt, Status.DONE if by is EndedBy.TURNS else status, by, error)

    return end


FAULT = Fault(
    name="turn-limit-counts-as-done",
    numbers=(67,),
    what="demonstrations cut by the limit of turns count as done",
    plant=lambda: patched("truing.rollouts.attempt:Attempt.end", _wrong),
    expected=(),
    refusal="does not complete its episode",
    changes={**TOOLS, "episode.max_turns": 1},
)
