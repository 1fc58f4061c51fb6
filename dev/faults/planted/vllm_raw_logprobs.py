"""vLLM returns raw log-probabilities, although it samples at a temperature."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    return lambda logits, processed, token, count: real(logits, logits, token, count)


FAULT = Fault(
    name="vllm-raw-logprobs",
    numbers=(80,),
    what="vLLM returns raw in place of processed log-probabilities",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _wrong),
    expected=("SMP011",),
    changes={**VLLM_LORA, "sampling.temperature": 0.7},
    refusal="without any parameter (raw log-probabilities)",
)
