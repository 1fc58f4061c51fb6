"""Answers of two attempts at one task are exchanged: their prompts are equal."""

from truing.faults.fault import Fault, patched
from truing.faults.healthy_runs import VLLM_LORA
from truing.faults.planted.vllm_answers_exchanged import exchanged


def _wrong(real):
    return exchanged(real, lambda ids: tuple(ids))


FAULT = Fault(
    name="vllm-answers-exchanged-in-groups",
    numbers=(81,),
    what="answers of two attempts at one task are exchanged",
    plant=lambda: patched("truing.faults.fake_vllm.app:FakeServer.sample", _wrong),
    expected=("SMP009",),
    changes=VLLM_LORA,
)
