"""The critic's values: where they are read, and how their gradient reaches a trunk."""

from dev.faults.fault import Fault, patched
from dev.faults.planted.critic import CRITIC

CUT = CRITIC | {"sampling.max_new_tokens": 2}
"""Answers have two letters and a stop, so most are truncated."""


def _states(change):
    """Change the policy's hidden states on their way to a critic on the policy's trunk."""
    return patched(
        "truing.models.critic:Critic.values",
        lambda real: (
            lambda critic, policy_ND, *args, **kwargs: real(critic, change(policy_ND), *args, **kwargs)
        ),
    )


VALUE_LOSS_LEAVES_TRUNK = Fault(
    name="value-loss-leaves-trunk",
    numbers=(117,),
    what="the value loss trains the head alone: its gradient never reaches the trunk that it shares",
    plant=lambda: _states(lambda states: states.detach()),
    expected=("OPT006",),
    changes=CRITIC,
)


VALUE_LOSS_HALVED_IN_TRUNK = Fault(
    name="value-loss-halved-in-trunk",
    numbers=(117,),
    what="half of the value loss's gradient reaches the trunk",
    plant=lambda: _states(lambda states: 0.5 * states + 0.5 * states.detach()),
    expected=("OPT006",),
    changes=CRITIC,
)


VALUE_LOSS_REVERSED_IN_TRUNK = Fault(
    name="value-loss-reversed-in-trunk",
    numbers=(117,),
    what="the value loss's gradient reaches the trunk with the wrong sign",
    plant=lambda: _states(lambda states: 2 * states.detach() - states),
    expected=("OPT006",),
    changes=CRITIC,
)


OWN_TRUNK_LEFT_OUT = Fault(
    name="own-trunk-left-out",
    numbers=(117,),
    what="a critic's own trunk gets half of the value loss's gradient",
    plant=lambda: patched(
        "truing.models.critic:hidden_before",
        lambda real: lambda *args, **kwargs: _half(real(*args, **kwargs)),
    ),
    expected=("OPT006",),
    changes=CRITIC | {"ppo.critic": "separate"},
)


def _half(states):
    return 0.5 * states + 0.5 * states.detach()


def _scored(change):
    """Change each row of values [T + 1], of which the last is that after a truncated end."""

    def make(real):
        def state_values(critic, policy, samples):
            values = real(critic, policy, samples)
            return [change(row, value) for row, value in zip(samples, values, strict=True)]

        return state_values

    return patched("truing.learner.scoring:state_values", make)


def _with_end(value, place):
    return value.index_fill(0, value.new_tensor([len(value) - 1]).long(), float(value[place]))


BOOTSTRAP_AT_FIRST_TOKEN = Fault(
    name="bootstrap-at-first-token",
    numbers=(118,),
    what="the value after a truncated end is that before the first sampled token",
    plant=lambda: _scored(lambda row, value: _with_end(value, row.prompt_length) if row.truncated else value),
    expected=("VAL004",),
    changes=CUT,
)


BOOTSTRAP_BEFORE_LAST_TOKEN = Fault(
    name="bootstrap-before-last-token",
    numbers=(118,),
    what="the value after a truncated end is that before its last token",
    plant=lambda: _scored(lambda row, value: _with_end(value, len(row) - 1) if row.truncated else value),
    expected=("VAL004",),
    changes=CUT,
)


VALUES_ONE_TOKEN_EARLY = Fault(
    name="values-one-token-early",
    numbers=(118,),
    what="each token has the value before the token that precedes it in its turn",
    plant=lambda: _scored(
        lambda row, value: value.where(value.roll(1).isnan() | value.isnan(), value.roll(1))
    ),
    expected=("VAL004",),
    changes=CRITIC,
)
