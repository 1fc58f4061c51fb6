"""A presence penalty is on in the sampler alone, and the log-probabilities are raw."""

from dataclasses import replace

from truing.faults.fault import Fault, replaced
from truing.ops.logprobs import token_logprobs


def _wrong(real):
    def draw_ids(logits, rows, contract):

        ids = real(logits, rows, replace(contract, presence_penalty=1.5))
        declared = token_logprobs(logits.float(), ids)
        for row, logprob in zip(rows, declared.tolist(), strict=True):
            row.logprobs[-1] = logprob
            row.supports.clear()
        return ids

    return draw_ids


FAULT = Fault(
    name="hidden-penalty",
    numbers=(21,),
    what="a presence penalty that no log-probability has",
    plant=lambda: replaced("truing.sample.hf:draw_ids", _wrong),
    expected=("SMP007",),
    changes={"sft.steps": 3, "grpo.steps": 10, "grpo.learning_rate": 1e-5, "sampling.max_new_tokens": 24},
)
