"""A custom worker switches the adapter's transfer off, and the version is still counted up (trl#6344)."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    loads = []

    def load(self, folder):
        loads.append(folder)
        if len(loads) <= 2:
            real(self, folder)

    return load


FAULT = Fault(
    name="vllm-transfer-off",
    numbers=(75,),
    what="vLLM takes the first two adapters only, and its version is counted up",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are the weights of version 3, 1 publication before",
    seen=("trl#6344",),
)
