"""The critic is not sharded: each rank steps with the gradient of its own rows."""

from dev.faults.fault import Fault, patched

FAULT = Fault(
    name="rank-critic-not-summed",
    numbers=(98,),
    what="the critic's gradient is not summed over ranks",
    plant=lambda: patched("truing.learner.learner:shard_critic", lambda real: lambda *_, **__: None),
    expected=("OPT014",),
    changes={
        "trainer.ranks": 2,
        "stages": ["sft", "ppo"],
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)
