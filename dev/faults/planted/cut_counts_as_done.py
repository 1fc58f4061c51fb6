"""Attempts that ran into the limit count as done."""

from dev.faults.fault import Fault, patched
from truing.types.status import EndedBy, Status


def _wrong(real):
    def end(attempt, status, by, error=""):
        return real(attempt, Status.DONE if by is EndedBy.LENGTH else status, by, error)

    return end


FAULT = Fault(
    name="cut-counts-as-done",
    numbers=(67,),
    what="cut attempts count as done, so that no gate finds them",
    plant=lambda: patched("truing.rollouts.attempt:Attempt.end", _wrong),
    expected=("LEN005",),
    changes={"gates.truncated": "mask"},
)
