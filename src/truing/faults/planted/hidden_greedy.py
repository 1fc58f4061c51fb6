"""Tokens are drawn nearly greedily, and reported at temperature 1."""

from dataclasses import replace

from truing.faults.fault import Fault, replaced
from truing.ops.logprobs import token_logprobs


def _wrong(real):
    def draw_ids(logits, rows, contract):

        ids = real(logits, rows, replace(contract, temperature=0.2))
        declared = token_logprobs(logits.float(), ids)
        for row, logprob in zip(rows, declared.tolist(), strict=True):
            row.logprobs[-1] = logprob
            row.supports.clear()
        return ids

    return draw_ids


FAULT = Fault(
    name="hidden-greedy",
    numbers=(18,),
    what="nearly greedy draws are reported as if they were not",
    plant=lambda: replaced("truing.sample.hf:draw_ids", _wrong),
    expected=("SMP007",),
    changes={"sft.steps": 25, "grpo.steps": 14, "grpo.learning_rate": 1e-05, "sampling.max_new_tokens": 12},
)
