"""vLLM divides alpha by the rank and loses the remainder."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        return {name: (down, up / 1.5) for name, (down, up) in adapter.items()}

    return read


FAULT = Fault(
    name="vllm-alpha-truncated",
    numbers=(74,),
    what="vLLM scales the adapter by 1 in place of alpha / rank = 1.5",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _wrong),
    expected=("SMP011",),
    changes={**VLLM_LORA, "lora.alpha": 6.0},
    refusal="the adapter is scaled by 0.666",
    seen=("sglang#40835",),
)
