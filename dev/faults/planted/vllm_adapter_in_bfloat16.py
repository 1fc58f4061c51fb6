"""vLLM holds adapters in bfloat16 beside a base in float32, as with --lora-dtype."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        return {n: (down.bfloat16().float(), up.bfloat16().float()) for n, (down, up) in adapter.items()}

    return read


FAULT = Fault(
    name="vllm-adapter-in-bfloat16",
    numbers=(77,),
    what="vLLM holds the adapter in bfloat16",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are rounded to bfloat16",
    not_in_bfloat16="no fault: a server that computes in bfloat16 holds adapters in it",
)
