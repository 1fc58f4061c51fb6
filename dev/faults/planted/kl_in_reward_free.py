"""The declared KL in the reward costs nothing."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def kl_cost(sample, cfg):
        return torch.zeros_like(real(sample, cfg))

    return kl_cost


FAULT = Fault(
    name="kl-in-reward-free",
    numbers=(),
    what="the declared KL in the reward costs nothing",
    plant=lambda: patched("truing.algos.trajectories:kl_cost", _wrong),
    expected=("ADV006",),
    changes={
        "stages": ["sft", "ppo"],
        "sft.steps": 20,
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 3e-3},
        "kl.coef": 0.1,
        "kl.where": "reward",
        "kl.estimator": "k1",
    },
)
