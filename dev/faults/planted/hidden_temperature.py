"""Tokens are sampled at a hidden temperature: raw log-probabilities on both sides."""

from dev.faults.fault import Fault, patched
from dev.faults.sampler_distribution import drawn_under

FAULT = Fault(
    name="hidden-temperature",
    numbers=(18,),
    what="tokens are sampled at temperature 1.3 and recorded at 1",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(temperature=1.3)),
    expected=("SMP009", "SMP007"),
    changes={"sft.steps": 25, "grpo.steps": 14, "grpo.learning_rate": 1e-05, "sampling.max_new_tokens": 12},
)
