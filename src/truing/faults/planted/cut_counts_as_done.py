"""Attempts that ran into the limit count as done."""

from truing.faults.fault import Fault, replaced
from truing.types.status import EndedBy, Status


def _wrong(real):
    def end(seat, status, by, error=""):
        return real(seat, Status.DONE if by is EndedBy.LENGTH else status, by, error)

    return end


FAULT = Fault(
    name="cut-counts-as-done",
    numbers=(67,),
    what="attempts that were cut count as done, so that no gate finds them",
    plant=lambda: replaced("truing.rollouts.attempt:Seat.end", _wrong),
    expected=("LEN005",),
    changes={"gates.truncated": "mask"},
)
