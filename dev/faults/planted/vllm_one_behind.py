"""vLLM computes with the adapter of the publication before."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def load(self, folder):
        before = self.slot
        real(self, folder)
        self.slot = before or self.slot

    return load


FAULT = Fault(
    name="vllm-one-behind",
    numbers=(75,),
    what="vLLM computes with the adapter of the publication before",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are the weights of version 0, 1 publication before",
)
