"""Tokens are drawn from a nucleus, and their log-probabilities are of the whole vocabulary."""

from dataclasses import replace

from truing.faults.fault import Fault, replaced
from truing.ops.logprobs import token_logprobs


def _wrong(real):
    def draw_ids(logits, rows, contract):

        ids = real(logits, rows, replace(contract, top_p=0.8))
        declared = token_logprobs(logits.float(), ids)
        for row, logprob in zip(rows, declared.tolist(), strict=True):
            row.logprobs[-1] = logprob
            row.supports.clear()
        return ids

    return draw_ids


FAULT = Fault(
    name="hidden-top-p",
    numbers=(19,),
    what="tokens are drawn from a nucleus and reported over the whole vocabulary",
    plant=lambda: replaced("truing.sample.hf:draw_ids", _wrong),
    expected=("SMP007",),
    changes={"sft.steps": 3, "grpo.steps": 10, "grpo.learning_rate": 1e-5, "sampling.max_new_tokens": 24},
)
