"""vLLM's answers have each id plus 1."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def answer(turn, request, scored):
        ids = [token + 1 for token in turn.ids]
        top = [{token + 1: logprob for token, logprob in each.items()} for each in turn.top_logprobs]
        return real(replace(turn, ids=ids, top_logprobs=top), request, scored)

    return answer


FAULT = Fault(
    name="vllm-ids-off-by-one",
    numbers=(81,),
    what="vLLM's answers have each id plus 1",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)
