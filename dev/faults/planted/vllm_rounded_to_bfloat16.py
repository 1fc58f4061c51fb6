"""All weights pass through bfloat16 on their way to vLLM, which computes in float32."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM


def _wrong(real):
    def read(folder):
        return {name: weight.bfloat16().float() for name, weight in real(folder).items()}

    return read


FAULT = Fault(
    name="vllm-rounded-to-bfloat16",
    numbers=(77,),
    what="all weights are rounded to bfloat16 on their way to vLLM",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_weights", _wrong),
    expected=("SMP011",),
    changes=VLLM,
    refusal="they are rounded to bfloat16, which loses small updates",
    not_in_bfloat16="no fault: the published weights are in bfloat16",
)
