"""A reload of all weights leaves the packed copy of a tied output head as it was."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM


def _wrong(real):
    return lambda self: None


FAULT = Fault(
    name="vllm-tied-head-stale",
    numbers=(76,),
    what="a reload leaves vLLM's packed output head as it was",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.refresh_packed", _wrong),
    expected=("SMP011",),
    changes=VLLM,
    refusal="in 1 of 16 layers: they are the weights of version 0, 1 publication before",
)
