"""vLLM samples from a policy that is nearly uniform at another temperature than it reports."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    return lambda processed, params, generator: real(processed / 1.3, params, generator)


FAULT = Fault(
    name="vllm-hidden-temperature-lora",
    numbers=(18,),
    what="vLLM samples a nearly uniform policy at temperature 1.3 and returns log-probabilities of 1",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:draw", _wrong),
    expected=("SMP009",),
    changes={**VLLM_LORA, "sampling.max_new_tokens": 12},
)
