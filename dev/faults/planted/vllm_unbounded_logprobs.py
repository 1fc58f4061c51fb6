"""vLLM samples from top-k, and its log-probabilities are of the whole distribution."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA

TEMPERATURE = 0.8


def _wrong(real):
    return lambda logits, processed, token, count: {
        id_: float((logits / TEMPERATURE).log_softmax(0)[id_])
        for id_ in real(logits, processed, token, count)
    }


FAULT = Fault(
    name="vllm-unbounded-logprobs",
    numbers=(80,),
    what="vLLM samples from top-k and returns log-probabilities of the whole distribution",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _wrong),
    expected=("SMP011",),
    changes={**VLLM_LORA, "sampling.top_k": 12, "sampling.temperature": TEMPERATURE},
    refusal="of the whole distribution, without top-k, top-p or min-p",
)
