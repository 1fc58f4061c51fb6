"""After its first sleep vLLM takes no weights (trl#5312)."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def wake_up(self, body):
        self.model.load_adapter = lambda folder: None
        return real(self, body)

    return wake_up


FAULT = Fault(
    name="vllm-not-synced-after-sleep",
    numbers=(75,),
    what="vLLM takes no weights after its first sleep, and its version is counted up",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.wake_up", _wrong),
    expected=("SMP011",),
    changes={**VLLM_LORA, "engine.sleep": True},
    refusal="they are the weights of version",
    seen=("trl#5312",),
)
