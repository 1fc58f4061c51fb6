"""Bugs in optimizer steps after the first: of these nothing is wrong before a weight has changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import PPO

INNER = {"grpo.inner_epochs": 2, "grpo.minibatches": 2, "grpo.learning_rate": 1e-2}
CRITIC = PPO | {"sft.steps": 20, "ppo.value_learning_rate": 1e-2}


def _in_steps(chosen: Callable[[int], bool], target: str, make: Callable[[Any], Any]) -> Any:
    """Plant another bug while some optimizer steps compute their gradient; ``chosen`` gets their index."""

    def accumulating(real):
        def accumulate_gradients(learner, minibatch, index, *rest):
            if not chosen(index):
                return real(learner, minibatch, index, *rest)
            with patched(target, make):
                return real(learner, minibatch, index, *rest)

        return accumulate_gradients

    return patched("truing.learner.step:accumulate_gradients", accumulating)


def _once(index: int) -> bool:
    return index == 1


def _later(index: int) -> bool:
    return index > 0


def _negated(real):
    return lambda *args, **kwargs: -real(*args, **kwargs)


LOSS_NEGATED_ONCE = Fault(
    name="loss-negated-once",
    numbers=(),
    what="the policy loss has the wrong sign in the second of four optimizer steps",
    plant=lambda: _in_steps(_once, "truing.algos.loss_terms:policy_loss", _negated),
    expected=("MSK003",),
    changes=INNER,
)


def _without_clip(real):
    def policy_loss(*args, objective, **kwargs):
        return real(*args, objective=replace(objective, clip_low=1.0, clip_high=1e9), **kwargs)

    return policy_loss


CLIP_LEFT_OUT_LATER = Fault(
    name="clip-left-out-later",
    numbers=(),
    what="the clip is missing after the first optimizer step",
    plant=lambda: _in_steps(_later, "truing.algos.loss_terms:policy_loss", _without_clip),
    expected=("MSK003",),
    changes=INNER | {"grpo.clip_low": 0.05, "grpo.clip_high": 0.05},
)


KL_LEFT_OUT_LATER = Fault(
    name="kl-left-out-later",
    numbers=(),
    what="the KL term is missing after the first optimizer step",
    plant=lambda: _in_steps(
        _later,
        "truing.algos.loss_terms:kl_loss",
        lambda real: lambda *args, **kwargs: 0.0 * real(*args, **kwargs),
    ),
    expected=("MSK003",),
    changes=INNER | {"kl.coef": 0.05},
)


def _advantages_of_neighbours(real):
    def policy_loss(logprob_BT, old_BT, advantage_BT, mask_BT, **kwargs):
        rolled_BT = advantage_BT.roll(1, 0)
        return real(logprob_BT, old_BT, torch.where(mask_BT, rolled_BT, 0.0), mask_BT, **kwargs)

    return policy_loss


ADVANTAGES_OF_NEIGHBOURS_ONCE = Fault(
    name="advantages-of-neighbours-once",
    numbers=(),
    what="in the second of four optimizer steps each sample has the advantages of the one before it",
    plant=lambda: _in_steps(_once, "truing.algos.loss_terms:policy_loss", _advantages_of_neighbours),
    expected=("MSK003",),
    changes=INNER,
)


def _denominator_halved(real):
    def policy_loss(*args, denominator, **kwargs):
        return real(*args, denominator=denominator / 2, **kwargs)

    return policy_loss


DENOMINATOR_HALVED_LATER = Fault(
    name="denominator-halved-later",
    numbers=(),
    what="after the first optimizer step the loss is divided by half of its tokens",
    plant=lambda: _in_steps(_later, "truing.algos.loss_terms:policy_loss", _denominator_halved),
    expected=("MSK003",),
    changes=INNER,
)


def _doubled(real):
    return lambda *args, **kwargs: 2.0 * real(*args, **kwargs)


VALUE_LOSS_DOUBLED_LATER = Fault(
    name="value-loss-doubled-later",
    numbers=(),
    what="the value loss is doubled after the first optimizer step",
    plant=lambda: _in_steps(_later, "truing.algos.loss_terms:value_loss", _doubled),
    expected=("VAL003",),
    changes=CRITIC,
)


def _without_value_clip(real):
    def value_loss(value, returns, old, mask, clip_range, divisor):
        return real(value, returns, old, mask, None, divisor)

    return value_loss


VALUE_CLIP_LEFT_OUT = Fault(
    name="value-clip-left-out",
    numbers=(),
    what="the declared clip of values is missing",
    plant=lambda: patched("truing.algos.loss_terms:value_loss", _without_value_clip),
    expected=("VAL003",),
    changes=CRITIC | {"ppo.value_clip": 0.01},
)


def _returns_of_neighbours(real):
    def value_loss(value, returns, old, mask, clip_range, divisor):
        return real(value, torch.where(mask, returns.roll(1, 0), 0.0), old, mask, clip_range, divisor)

    return value_loss


RETURNS_OF_NEIGHBOURS_ONCE = Fault(
    name="returns-of-neighbours-once",
    numbers=(),
    what="in the second of four optimizer steps the critic learns the returns of the sample before",
    plant=lambda: _in_steps(_once, "truing.algos.loss_terms:value_loss", _returns_of_neighbours),
    expected=("VAL003",),
    changes=CRITIC,
)


def _old_value_moves(real):
    def value_loss(value, returns, old, mask, clip_range, divisor):
        return real(value, returns, value.detach(), mask, clip_range, divisor)

    return value_loss


OLD_VALUE_MOVES = Fault(
    name="old-value-moves",
    numbers=(),
    what="values are clipped around themselves, so never",
    plant=lambda: patched("truing.algos.loss_terms:value_loss", _old_value_moves),
    expected=("VAL003",),
    changes=CRITIC | {"ppo.value_clip": 0.01},
)


ENTROPY_SIGN_LATER = Fault(
    name="entropy-sign-later",
    numbers=(54, 120),
    what="the entropy bonus has the wrong sign after the first optimizer step",
    plant=lambda: _in_steps(_later, "truing.algos.loss_terms:entropy_loss", _negated),
    expected=("MSK003",),
    changes=INNER | {"entropy.coef": 0.02},
)
