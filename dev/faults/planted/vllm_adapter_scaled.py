"""vLLM scales the adapter by another factor than alpha / rank."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def read(folder, dtype):
        return {name: (down, up * 2) for name, (down, up) in real(folder, dtype).items()}

    return read


FAULT = Fault(
    name="vllm-adapter-scaled",
    numbers=(74,),
    what="vLLM scales the adapter by twice alpha / rank",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the adapter is scaled by 2 times",
)
