"""A presence penalty is on in the sampler alone, and the log-probabilities are raw."""

from dev.faults.fault import Fault, patched
from dev.faults.sampler_distribution import drawn_under

FAULT = Fault(
    name="hidden-penalty",
    numbers=(21,),
    what="a presence penalty in the sampler that no log-probability includes",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(presence_penalty=1.5)),
    expected=("SMP009", "SMP007"),
    changes={"sft.steps": 3, "grpo.steps": 10, "grpo.learning_rate": 1e-5, "sampling.max_new_tokens": 24},
)
