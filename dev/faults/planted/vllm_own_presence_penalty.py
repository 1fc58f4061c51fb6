"""vLLM applies a presence penalty of its own."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA

OWN = {"presence_penalty": 0.45}
"""What the server takes from a file of its own."""


def _wrong(real):
    return lambda logits, prompt, ids, params: real(logits, prompt, ids, params | OWN)


FAULT = Fault(
    name="vllm-own-presence-penalty",
    numbers=(80,),
    what="vLLM applies a presence penalty of its own",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:process_logits", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are those of presence",
)
