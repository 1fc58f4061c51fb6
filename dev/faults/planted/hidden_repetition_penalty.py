"""A small repetition penalty is on in the sampler alone, and the log-probabilities are raw."""

from dev.faults.fault import Fault, patched
from dev.faults.sampler_distribution import drawn_under

FAULT = Fault(
    name="hidden-repetition-penalty",
    numbers=(21,),
    what="a repetition penalty of 1.1 in the sampler that no log-probability includes",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(repetition_penalty=1.1)),
    expected=("SMP009", "SMP007"),
    changes={"grpo.steps": 6, "grpo.learning_rate": 1e-5, "sampling.max_new_tokens": 24},
)
