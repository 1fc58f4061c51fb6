"""Tokens are drawn at a temperature that nobody else knows of: raw log-probabilities on both sides."""

from dataclasses import replace

from truing.faults.fault import Fault, replaced
from truing.ops.logprobs import token_logprobs


def _wrong(real):
    def draw_ids(logits, rows, contract):

        ids = real(logits, rows, replace(contract, temperature=1.3))
        declared = token_logprobs(logits.float(), ids)
        for row, logprob in zip(rows, declared.tolist(), strict=True):
            row.logprobs[-1] = logprob
            row.supports.clear()
        return ids

    return draw_ids


FAULT = Fault(
    name="hidden-temperature",
    numbers=(18,),
    what="tokens are drawn at temperature 1.3 and reported at 1",
    plant=lambda: replaced("truing.sample.hf:draw_ids", _wrong),
    expected=("SMP007",),
    changes={"sft.steps": 25, "grpo.steps": 14, "grpo.learning_rate": 1e-05, "sampling.max_new_tokens": 12},
)
