"""vLLM reads prompts with the adapter, and decodes without it; rollouts are sampled ahead."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_AHEAD


def _wrong(real):
    def forward(self, ids, scope, cache):
        decodes = len(ids) == 1 and cache.get_seq_length()
        return real(self, ids, scope._replace(adapter="") if decodes else scope, cache)

    return forward


FAULT = Fault(
    name="vllm-decodes-without-adapter",
    numbers=(86,),
    what="vLLM reads prompts with the adapter and decodes without it",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.forward", _wrong),
    expected=("SMP011",),
    changes=VLLM_AHEAD,
    refusal="no single sampling parameter was found that gives them",
)
