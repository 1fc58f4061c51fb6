"""vLLM's log-probability of a token is that of the likeliest id."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def answer(logits, processed, token, count):
        found = real(logits, processed, token, count)
        return found | {token: float(processed.log_softmax(0).max())}

    return answer


FAULT = Fault(
    name="vllm-likeliest-logprob",
    numbers=(80,),
    what="vLLM returns the log-probability of the likeliest id",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)
