"""The critic's gradient is averaged over ranks, the policy's is summed."""

from torch.distributed.fsdp import FSDPModule

from dev.faults.fault import Fault, patched


def _wrong(real):
    def shard_critic(critic, *args, **options):
        real(critic, *args, **options)
        for part in critic.modules():  # in bfloat16 the head is sharded apart
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(2.0)

    return shard_critic


FAULT = Fault(
    name="rank-critic-averaged",
    numbers=(98,),
    what="the critic's gradient is averaged over ranks",
    plant=lambda: patched("truing.learner.learner:shard_critic", _wrong),
    expected=("OPT014",),
    changes={
        "trainer.ranks": 2,
        "stages": ["sft", "ppo"],
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)
