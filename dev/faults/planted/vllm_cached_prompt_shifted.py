"""After a prompt that its prefix cache holds, vLLM computes with the prefix of one token less."""

from dev.faults.fake_vllm.weights import BLOCK
from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    seen = set()

    def prefill(self, ids, scope, *, cached=True):
        first = (*scope, *ids[:BLOCK])
        is_held = cached and len(ids) > BLOCK and first in seen
        if cached:
            seen.add(first)
        return real(self, ids[1:], scope, cached=False) if is_held else real(self, ids, scope, cached=cached)

    return prefill


FAULT = Fault(
    name="vllm-cached-prompt-shifted",
    numbers=(107,),
    what="vLLM computes with another context after a prompt that its prefix cache holds",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.prefill", _wrong),
    expected=("SMP011", "SMP004"),
    changes=VLLM_LORA,
    refusal="its prefix cache holds other keys and values",
)
