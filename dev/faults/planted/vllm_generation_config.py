"""vLLM takes temperature, top-k and top-p from a generation_config.json."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA

OWN = {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
"""What the server takes from a file of its own."""


def _wrong(real):
    return lambda logits, prompt, ids, params: real(logits, prompt, ids, params | OWN)


FAULT = Fault(
    name="vllm-generation-config",
    numbers=(80,),
    what="vLLM samples with its own temperature, top-k and top-p",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:process_logits", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)
