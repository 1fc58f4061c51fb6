"""vLLM drops the adapter after its publication was proven, and answers with the base."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def update_version(self, body):
        self.model.slot = {}
        return real(self, body)

    return update_version


FAULT = Fault(
    name="vllm-adapter-evicted",
    numbers=(85,),
    what="vLLM drops the adapter after its publication was proven",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.update_version", _wrong),
    expected=("SMP011", "SMP004", "RAT002"),
    changes=VLLM_LORA,
    refusal="were proven, and the engine changed them since",
)
