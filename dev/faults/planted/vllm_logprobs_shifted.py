"""vLLM's log-probabilities are those of the token before."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def answer(turn, request, scored):
        before = [turn.top_logprobs[0], *turn.top_logprobs[:-1]]
        shifted = [{token: next(iter(each.values()))} for token, each in zip(turn.ids, before, strict=True)]
        return real(replace(turn, top_logprobs=shifted), request, scored)

    return answer


FAULT = Fault(
    name="vllm-logprobs-shifted",
    numbers=(80,),
    what="vLLM's log-probabilities are one token late",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)
