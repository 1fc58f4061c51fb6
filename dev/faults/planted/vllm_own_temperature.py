"""vLLM samples at a temperature of its own, as a generation_config.json may declare it."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    return lambda logits, prompt, ids, params: real(logits, prompt, ids, params | {"temperature": 0.65})


FAULT = Fault(
    name="vllm-own-temperature",
    numbers=(80,),
    what="vLLM samples at a temperature of its own",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:process_logits", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are those of temperature 0.65",
)
