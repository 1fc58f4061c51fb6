"""vLLM applies a repetition penalty of its own, which counts the prompt."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    return lambda logits, prompt, ids, params: real(logits, prompt, ids, params | {"repetition_penalty": 1.1})


FAULT = Fault(
    name="vllm-own-repetition-penalty",
    numbers=(80,),
    what="vLLM applies a repetition penalty of its own",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:process_logits", _wrong),
    expected=("SMP011", "SMP004"),
    changes=VLLM_LORA,
    refusal="they are those of repetition penalty 1.1, which counts the prompt",
)
