"""Every publication ships the frozen base: the adapter in vLLM is zero (verl#7495)."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def read(folder, dtype):
        return {name: (down * 0, up * 0) for name, (down, up) in real(folder, dtype).items()}

    return read


FAULT = Fault(
    name="vllm-adapter-not-delivered",
    numbers=(74,),
    what="every publication to vLLM ships zeros",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="their adapter is missing or zero",
    seen=("verl#7495",),
)
