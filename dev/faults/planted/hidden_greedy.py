"""Tokens are sampled nearly greedily, and recorded at temperature 1."""

from dev.faults.fault import Fault, patched
from dev.faults.sampler_distribution import drawn_under

FAULT = Fault(
    name="hidden-greedy",
    numbers=(18,),
    what="nearly greedy draws are recorded at temperature 1",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(temperature=0.2)),
    expected=("SMP009", "SMP007", "SMP008"),
    changes={"sft.steps": 25, "grpo.steps": 14, "grpo.learning_rate": 1e-05, "sampling.max_new_tokens": 12},
)
