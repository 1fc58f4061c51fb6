"""vLLM loads each adapter, and computes without it."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    return lambda self: {}


FAULT = Fault(
    name="vllm-adapter-not-active",
    numbers=(74,),
    what="vLLM holds the adapter and computes without it",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="it scores with the base model without its adapter",
)
