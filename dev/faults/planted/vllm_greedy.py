"""vLLM decodes greedily and returns log-probabilities of the declared temperature."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    return lambda processed, params, generator: int(processed.argmax())


FAULT = Fault(
    name="vllm-greedy",
    numbers=(18,),
    what="vLLM decodes greedily and returns log-probabilities of temperature 1",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:draw", _wrong),
    expected=("SMP011", "SMP009"),
    changes=VLLM_LORA,
    refusal="each id is the likeliest one, as in greedy decoding",
)
