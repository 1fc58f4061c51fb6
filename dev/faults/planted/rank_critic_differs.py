"""The second replica begins with another critic."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def critic_of(policy, **options):
        critic = real(policy, **options)
        torch.nn.init.constant_(critic.head.bias, 0.1)
        return critic

    return critic_of


FAULT = Fault(
    name="rank-critic-differs",
    numbers=(98,),
    what="one replica begins with another critic",
    plant=lambda: patched("truing.learner.learner:Critic", _wrong),
    expected=("DST001",),
    changes={
        "trainer.ranks": 2,
        "trainer.replicate": 2,
        "stages": ["sft", "ppo"],
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
    on_ranks=(1,),
)
