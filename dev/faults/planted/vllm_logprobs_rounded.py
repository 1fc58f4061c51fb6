"""vLLM's log-probabilities pass through bfloat16 on their way."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def answer(logits, processed, token, count):
        return {
            id_: float(torch.tensor(each).bfloat16())
            for id_, each in real(logits, processed, token, count).items()
        }

    return answer


FAULT = Fault(
    name="vllm-logprobs-rounded",
    numbers=(80,),
    what="vLLM's log-probabilities are rounded to bfloat16",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _wrong),
    expected=("SMP011", "SMP004"),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)
