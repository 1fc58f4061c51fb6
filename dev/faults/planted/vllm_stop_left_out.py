"""vLLM leaves the stop id out of its answers, as servers do that return text."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def answer(turn, request, scored):
        found = real(turn, request, scored)
        choice = found["choices"][0]
        if turn.finish_reason == "stop" and len(turn.ids) > 1:
            choice["token_ids"].pop()
            choice["logprobs"]["content"].pop()
        return found

    return answer


FAULT = Fault(
    name="vllm-stop-left-out",
    numbers=(108,),
    what="vLLM leaves the stop id out of its answers",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _wrong),
    expected=("LEN005",),
    changes={**VLLM_LORA, "sft.steps": 20, "sft.learning_rate": 1e-2, "sampling.max_new_tokens": 12},
    refusal="it leaves out the stop id that ended it",
    seen=("verl#2727",),
)
