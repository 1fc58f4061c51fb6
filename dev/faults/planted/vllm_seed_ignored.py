"""vLLM samples every answer with the same random numbers."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def sample(self, ids, scope, params):
        return real(self, ids, scope, params | {"seed": 0})

    return sample


FAULT = Fault(
    name="vllm-seed-ignored",
    numbers=(64,),
    what="vLLM samples every answer with the same random numbers",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _wrong),
    expected=("SMP008", "SMP011"),
    changes=VLLM_LORA,
    refusal="the engine gives equal answers to equal prompts, although their seeds differ",
)
