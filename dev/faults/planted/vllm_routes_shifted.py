"""vLLM's answers have each token's expert routes one token late."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import MIXTURE


def _wrong(real):
    return lambda routes: None if routes is None else real(routes.roll(1, 0))


FAULT = Fault(
    name="vllm-routes-shifted",
    numbers=(88,),
    what="vLLM's answers have each token's expert routes one token late",
    plant=lambda: patched("dev.faults.fake_vllm.answers:encoded_routes", _wrong),
    expected=("SMP012",),
    changes=MIXTURE,
    refusal="no single sampling parameter was found that gives them",
)
