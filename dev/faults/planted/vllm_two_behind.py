"""After some publications vLLM computes with an adapter of two publications before."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    loaded = []

    def load(self, folder):
        real(self, folder)
        loaded.append(self.slot)
        self.slot = loaded[-1] if len(loaded) < 4 else loaded[-3]

    return load


FAULT = Fault(
    name="vllm-two-behind",
    numbers=(75,),
    what="vLLM computes with all weights of two publications before, after three healthy ones",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are the weights of version 3, 2 publications before",
)
