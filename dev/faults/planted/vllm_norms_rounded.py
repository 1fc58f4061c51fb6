"""Norms pass through bfloat16 on their way, as where every vector is cast."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM


def _wrong(real):
    def read(folder):
        weights = real(folder)
        return {name: each.bfloat16().float() if each.ndim == 1 else each for name, each in weights.items()}

    return read


FAULT = Fault(
    name="vllm-norms-rounded",
    numbers=(77,),
    what="norms are rounded to bfloat16 on their way to vLLM",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_weights", _wrong),
    expected=("SMP011",),
    changes=VLLM,
    refusal="the engine holds other vectors than were published: 5 of 5: they are rounded to bfloat16",
    not_in_bfloat16="no fault: the published weights are in bfloat16",
)
