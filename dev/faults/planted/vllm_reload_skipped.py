"""Reloads of all weights do nothing, and the version is counted up all the same (trl#5312, trl#6344)."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM


def _wrong(real):
    return lambda self, folder: None


FAULT = Fault(
    name="vllm-reload-skipped",
    numbers=(75,),
    what="vLLM keeps its first weights, and its version is counted up",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.reload_weights", _wrong),
    expected=("SMP011",),
    changes=VLLM,
    refusal="they are the weights of version 0, 1 publication before",
    seen=("trl#5312", "trl#6344"),
)
