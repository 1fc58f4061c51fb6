"""The critic's own part of the optimizer, and its weights."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import PPO

CRITIC = PPO | {"sft.steps": 20}


def _of_critic(**settings):
    """Step the optimizer with other settings of the critic's group."""

    def make(real):
        def clip_and_step(optimizer, *args):
            for group in optimizer.param_groups[1:]:
                group.update(settings)
            return real(optimizer, *args)

        return clip_and_step

    return patched("truing.learner.step:clip_and_step", make)


CRITIC_RATE_TIMES_TEN = Fault(
    name="critic-rate-times-ten",
    numbers=(),
    what="the critic learns at ten times its declared rate",
    plant=lambda: _of_critic(lr=3e-3),
    expected=("OPT003",),
    changes=CRITIC,
)


CRITIC_DECAYS = Fault(
    name="critic-decays",
    numbers=(),
    what="the critic's weights decay, which the recipe does not declare",
    plant=lambda: _of_critic(weight_decay=1.0),
    expected=("OPT003",),
    changes=CRITIC,
)


CRITIC_EPSILON = Fault(
    name="critic-epsilon",
    numbers=(),
    what="the critic's ε is a thousand, and its steps are nearly 0",
    plant=lambda: _of_critic(eps=1e3),
    expected=("OPT003",),
    changes=CRITIC,
)


def _critic_not_restored(real):
    def restore(learner, folder):
        initial = {name: weight.detach().clone() for name, weight in learner.critic.trainable().items()}
        real(learner, folder)
        with torch.no_grad():
            for name, weight in learner.critic.trainable().items():
                weight.copy_(initial[name])

    return restore


CRITIC_NOT_RESTORED = Fault(
    name="critic-not-restored",
    numbers=(101,),
    what="a resumed run has the policy of the checkpoint, and a new critic",
    plant=lambda: patched("truing.learner.learner:Learner.restore", _critic_not_restored),
    expected=("OPT002",),
    changes=CRITIC | {"checkpoint_every": 1, "trainer.ranks": 2},
    resumed_after=2,
)


def _critic_written(real):
    def set_learning_rates(learner, step):
        real(learner, step)
        if learner.critic is not None and step == 2:
            with torch.no_grad():
                for weight in learner.critic.head.parameters():
                    weight.mul_(1.01)

    return set_learning_rates


CRITIC_WRITTEN_ONCE = Fault(
    name="critic-written-once",
    numbers=(34,),
    what="code outside the optimizer writes into the critic's head before one step",
    plant=lambda: patched("truing.learner.learner:Learner.set_learning_rates", _critic_written),
    expected=("OPT002",),
    changes=CRITIC,
)
