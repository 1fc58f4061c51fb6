"""vLLM samples at a temperature that its log-probabilities do not include."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM


def _wrong(real):
    return lambda processed, params, generator: real(processed / 1.3, params, generator)


FAULT = Fault(
    name="vllm-hidden-temperature",
    numbers=(18,),
    what="vLLM samples at temperature 1.3 and returns log-probabilities of 1",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:draw", _wrong),
    expected=("SMP009", "SMP007"),
    changes={
        **VLLM,
        "sft.steps": 25,
        "grpo.steps": 14,
        "grpo.learning_rate": 1e-5,
        "sampling.max_new_tokens": 12,
    },
)
