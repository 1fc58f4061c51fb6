"""vLLM's log-probability of a token is that of the turn so far."""

from dataclasses import replace
from itertools import accumulate

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def answer(turn, request, scored):
        own = [each[token] for token, each in zip(turn.ids, turn.top_logprobs, strict=True)]
        sums = [{token: total} for token, total in zip(turn.ids, accumulate(own), strict=True)]
        return real(replace(turn, top_logprobs=sums), request, scored)

    return answer


FAULT = Fault(
    name="vllm-logprobs-cumulative",
    numbers=(80,),
    what="vLLM returns the log-probability of the turn so far",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)
