"""Tokens are sampled from a nucleus, with log-probabilities over the whole vocabulary."""

from dev.faults.fault import Fault, patched
from dev.faults.sampler_distribution import drawn_under

FAULT = Fault(
    name="hidden-top-p",
    numbers=(19,),
    what="tokens are sampled from a nucleus and recorded over the whole vocabulary",
    plant=lambda: patched("truing.engines.local.running_batch:draw_ids", drawn_under(top_p=0.8)),
    expected=("SMP009", "SMP007"),
    changes={"sft.steps": 3, "grpo.steps": 10, "grpo.learning_rate": 1e-5, "sampling.max_new_tokens": 24},
)
