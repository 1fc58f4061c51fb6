"""vLLM keeps the last 300 tokens of a prompt, and says nothing of it."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA

LIMIT = 300
"""Tokens of a prompt that are read."""


def _wrong(real):
    def prefill(self, ids, scope, **options):
        return real(self, ids[-LIMIT:], scope, **options)

    return prefill


FAULT = Fault(
    name="vllm-prompts-cut",
    numbers=(87,),
    what="vLLM cuts prompts on the left to 300 tokens",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.prefill", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the engine's log-probabilities are not those of the ",
)
