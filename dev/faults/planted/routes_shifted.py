"""Expert routes are recorded one token late."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import MIXTURE


def _wrong(real):
    def join_routes(turns):
        routes = real(turns)
        return None if routes is None else routes.roll(1, 0)

    return join_routes


FAULT = Fault(
    name="routes-shifted",
    numbers=(88,),
    what="each token is recorded with the expert routes of the token before it",
    plant=lambda: patched("truing.rollouts.flatten:join_routes", _wrong),
    expected=("SMP012",),
    changes=MIXTURE,
)
