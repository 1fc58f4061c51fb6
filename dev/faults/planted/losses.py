"""Terms of the loss: signs, clips, denominators."""

from dataclasses import replace
from itertools import count

from dev.faults.fault import Fault, patched


def _advantage_sign(real):
    return lambda *args, **kwargs: -real(*args, **kwargs)


ADVANTAGE_SIGN = Fault(
    name="advantage-sign",
    numbers=(32,),
    what="the policy loss has the wrong sign",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _advantage_sign),
    expected=("MSK003",),
)


def _entropy_sign(real):
    return lambda *args, **kwargs: -real(*args, **kwargs)


ENTROPY_SIGN = Fault(
    name="entropy-sign",
    numbers=(54,),
    what="the entropy bonus has the wrong sign",
    plant=lambda: patched("truing.algos.loss_terms:entropy_loss", _entropy_sign),
    expected=("MSK003",),
    changes={"entropy.coef": 0.05},
)


def _gate_left_out(real):
    def within_bounds(log_ratio, low, high):
        return real(log_ratio, None, None)

    return within_bounds


GATE_LEFT_OUT = Fault(
    name="gate-left-out",
    numbers=(),
    what="the declared gate on ratios is missing",
    plant=lambda: patched("truing.algos.loss_terms:within_bounds", _gate_left_out),
    expected=("MSK003",),
    changes={
        "gates.min_ratio": 0.9,
        "gates.max_ratio": 1.1,
        "grpo.inner_epochs": 3,
        "grpo.learning_rate": 1e-2,
    },
)


def _head_untrained(real):
    def clip_and_step(optimizer, norm, where, *parts):
        for part in parts[1:]:
            for weight in part.values():
                weight.grad = None
        return real(optimizer, norm, where, *parts)

    return clip_and_step


HEAD_UNTRAINED = Fault(
    name="head-untrained",
    numbers=(53,),
    what="the value head is not trained",
    plant=lambda: patched("truing.learner.step:clip_and_step", _head_untrained),
    expected=("VAL001",),
    changes={
        "stages": ["sft", "ppo"],
        "sft.steps": 30,
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)


def _kl_sign(real):
    return lambda *args, **kwargs: -real(*args, **kwargs)


KL_SIGN = Fault(
    name="kl-sign",
    numbers=(48,),
    what="the KL term has the wrong sign",
    plant=lambda: patched("truing.algos.loss_terms:kl_loss", _kl_sign),
    expected=("MSK003",),
    changes={"kl.coef": 0.5},
)


def _kl_swapped(real):
    return lambda new, ref, estimator: real(ref, new, estimator)


KL_SWAPPED = Fault(
    name="kl-swapped",
    numbers=(48,),
    what="policy and reference are exchanged in the KL estimator",
    plant=lambda: patched("truing.ops.losses:kl", _kl_swapped),
    expected=("MSK003",),
    changes={"kl.coef": 0.5, "kl.estimator": "k3", "grpo.learning_rate": 0.01},
)


def _loss_detached(real):
    def loss(logprob, *args, **kwargs):
        return real(logprob.detach(), *args, **kwargs) + 0.0 * logprob.sum()

    return loss


LOSS_DETACHED = Fault(
    name="loss-detached",
    numbers=(32,),
    what="the surrogate is detached on both sides",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _loss_detached),
    expected=("MSK003", "OPT005"),
)


def _micro_batch_lost(real):
    calls = count()

    def backward(learner, micro, divided, done, where, *hooks):
        if where.startswith("the doctor") or next(calls) % 2 == 0:
            real(learner, micro, divided, done, where, *hooks)

    return backward


MICRO_BATCH_LOST = Fault(
    name="micro-batch-lost",
    numbers=(56,),
    what="every second micro-batch is lost",
    plant=lambda: patched("truing.learner.step:backward", _micro_batch_lost),
    expected=("MSK003", "MSK007"),
    changes={"optimizer.micro_batch_tokens": 64},
)


def _micro_batch_means(real):
    def loss(logprob, old, advantage, mask, *, objective, denominator, weight_BT=None):
        own = float(len(mask))
        return real(logprob, old, advantage, mask, objective=objective, denominator=own, weight_BT=weight_BT)

    return loss


MICRO_BATCH_MEANS = Fault(
    name="micro-batch-means",
    numbers=(56,),
    what="the loss is divided by each micro-batch's own rows",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _micro_batch_means),
    expected=("MSK003",),
    changes={"optimizer.micro_batch_tokens": 64},
)


def _no_clip(real):
    def loss(*args, objective, **kwargs):
        return real(*args, objective=replace(objective, clip_low=0.99, clip_high=1e9), **kwargs)

    return loss


NO_CLIP = Fault(
    name="no-clip",
    numbers=(36,),
    what="the declared clip is not applied",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _no_clip),
    expected=("MSK003",),
    changes={"grpo.inner_epochs": 4, "grpo.learning_rate": 0.01, "sft.steps": 10},
)


def _ratio_per_sequence(real):
    return lambda log_ratio, mask, level: real(log_ratio, mask, "sequence")


RATIO_PER_SEQUENCE = Fault(
    name="ratio-per-sequence",
    numbers=(36,),
    what="one ratio per sequence instead of the declared one per token",
    plant=lambda: patched("truing.ops.losses:importance_ratio", _ratio_per_sequence),
    expected=("MSK003",),
    changes={"grpo.inner_epochs": 3, "sft.steps": 10},
)


def _token_mean(real):
    def loss(logprob, old, advantage, mask, *, objective, denominator, weight_BT=None):
        tokens = replace(objective, aggregation="token_mean")
        return real(
            logprob,
            old,
            advantage,
            mask,
            objective=tokens,
            denominator=float(mask.sum()),
            weight_BT=weight_BT,
        )

    return loss


TOKEN_MEAN = Fault(
    name="token-mean",
    numbers=(36, 56),
    what="the loss is a mean over tokens instead of the declared mean over sequences",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _token_mean),
    expected=("MSK003",),
)


def _doubled(real):
    return lambda *args: 2 * real(*args)


VALUE_LOSS_DOUBLED = Fault(
    name="value-loss-doubled",
    numbers=(36, 56),
    what="the critic's loss is twice the declared one",
    plant=lambda: patched("truing.algos.loss_terms:value_loss", _doubled),
    expected=("VAL003",),
    changes={
        "stages": ["sft", "ppo"],
        "ppo": {"steps": 2, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)
