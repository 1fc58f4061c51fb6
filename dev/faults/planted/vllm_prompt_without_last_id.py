"""vLLM reads prompts without their last id, as where a special token is stripped."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def sample(self, ids, scope, params):
        scores = params["prompt_logprobs"] is not None
        return real(self, ids if scores else ids[:-1], scope, params)

    return sample


FAULT = Fault(
    name="vllm-prompt-without-last-id",
    numbers=(87,),
    what="vLLM reads prompts without their last id",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)
