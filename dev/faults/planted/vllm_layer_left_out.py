"""vLLM leaves out one layer of each adapter."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        del adapter[next(iter(adapter))]
        return adapter

    return read


FAULT = Fault(
    name="vllm-layer-left-out",
    numbers=(74,),
    what="vLLM leaves out one layer of each adapter",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="in 1 of 14 layers: their adapter is missing or zero",
)
