"""Answers of two attempts at one task are exchanged: their prompts are equal."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA
from dev.faults.planted.vllm_answers_exchanged import exchanged


def _wrong(real):
    return exchanged(real, lambda ids: tuple(ids))


FAULT = Fault(
    name="vllm-answers-exchanged-in-groups",
    numbers=(81,),
    what="answers of two attempts at one task are exchanged",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _wrong),
    expected=("SMP009",),
    changes=VLLM_LORA,
)
