"""vLLM's answers have another id in place of one, as where text is decoded and encoded again."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA

FROM, TO = 97, 98
"""An id, and the one that takes its place."""


def _wrong(real):
    def answer(turn, request, scored):
        ids = [TO if token == FROM else token for token in turn.ids]
        pairs = zip(ids, turn.ids, turn.top_logprobs, strict=True)
        return real(
            replace(turn, ids=ids, top_logprobs=[{i: each[t]} for i, t, each in pairs]), request, scored
        )

    return answer


FAULT = Fault(
    name="vllm-ids-changed",
    numbers=(81,),
    what="one id of vLLM's answers is replaced by another",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _wrong),
    expected=("RAT002", "SMP009"),
    changes={**VLLM_LORA, "sampling.max_new_tokens": 12},
)
