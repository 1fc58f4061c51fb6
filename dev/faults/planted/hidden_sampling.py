"""Sampling parameters that are not on record."""

from dev.faults.fault import Fault, patched
from dev.faults.sampler_distribution import drawn_under

HIDDEN_GREEDY = Fault(
    name="hidden-greedy",
    numbers=(18,),
    what="nearly greedy draws are recorded at temperature 1",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(temperature=0.2)),
    expected=("SMP009", "SMP007", "SMP008"),
    changes={"sft.steps": 25, "grpo.steps": 14, "grpo.learning_rate": 1e-05, "sampling.max_new_tokens": 12},
)


HIDDEN_PENALTY = Fault(
    name="hidden-penalty",
    numbers=(21,),
    what="a presence penalty in the sampler that no log-probability includes",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(presence_penalty=1.5)),
    expected=("SMP009", "SMP007"),
    changes={"sft.steps": 3, "grpo.steps": 10, "grpo.learning_rate": 1e-5, "sampling.max_new_tokens": 24},
)


HIDDEN_REPETITION_PENALTY = Fault(
    name="hidden-repetition-penalty",
    numbers=(21,),
    what="a repetition penalty of 1.1 in the sampler that no log-probability includes",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(repetition_penalty=1.1)),
    expected=("SMP009", "SMP007"),
    changes={"grpo.steps": 6, "grpo.learning_rate": 1e-5, "sampling.max_new_tokens": 24},
)


HIDDEN_TEMPERATURE = Fault(
    name="hidden-temperature",
    numbers=(18,),
    what="tokens are sampled at temperature 1.3 and recorded at 1",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(temperature=1.3)),
    expected=("SMP009", "SMP007"),
    changes={"sft.steps": 25, "grpo.steps": 14, "grpo.learning_rate": 1e-05, "sampling.max_new_tokens": 12}
    | {"eval.tasks": 0},
)


HIDDEN_TOP_P = Fault(
    name="hidden-top-p",
    numbers=(19,),
    what="tokens are sampled from a nucleus and recorded over the whole vocabulary",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(top_p=0.8)),
    expected=("SMP009", "SMP007"),
    changes={"sft.steps": 3, "grpo.steps": 10, "grpo.learning_rate": 1e-5, "sampling.max_new_tokens": 24},
)
