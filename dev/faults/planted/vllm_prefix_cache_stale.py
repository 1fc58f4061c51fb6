"""Keys and values of the old weights answer after all weights were replaced (SkyRL#1431)."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM


def _wrong(real):
    return lambda self: None


FAULT = Fault(
    name="vllm-prefix-cache-stale",
    numbers=(75,),
    what="vLLM keeps keys and values of old weights",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.drop_prefixes", _wrong),
    expected=("SMP011",),
    changes=VLLM,
    refusal="its prefix cache holds other keys and values",
    seen=("SkyRL#1431",),
)
