"""The optimizer: its settings, its state, and what else changes weights."""

from contextlib import nullcontext
from itertools import count

import torch

from dev.faults.fault import Fault, patched

CAP_FOR_EVER = Fault(
    name="cap-for-ever",
    numbers=(73,),
    what="a cap on the KL skips every step",
    plant=nullcontext,
    expected=("OPT013",),
    changes={"kl.cap": 1e-6, "kl.cap_action": "skip", "grpo.steps": 12},
)


def _learning_rate_times_ten(real):
    return lambda *args, **kwargs: 10 * real(*args, **kwargs)


LEARNING_RATE_TIMES_TEN = Fault(
    name="learning-rate-times-ten",
    numbers=(57,),
    what="the learning rate is ten times as high as declared",
    plant=lambda: patched("truing.learner.learner:learning_rate", _learning_rate_times_ten),
    expected=("OPT004",),
)


def _moments_cleared(real):
    def clip_and_step(optimizer, max_norm, where, *parts):
        optimizer.state.clear()
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


MOMENTS_CLEARED = Fault(
    name="moments-cleared",
    numbers=(57,),
    what="the optimizer's moments are cleared before each step",
    plant=lambda: patched("truing.learner.step:clip_and_step", _moments_cleared),
    expected=("OPT010",),
)


def _steps_counted_on(real):
    def make_optimizer(cfg, *parts):
        optimizer = real(cfg, *parts)
        for weight in (each for part in parts for each in part.values()):
            zeros = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[weight] = {"step": torch.tensor(1000.0), **zeros}
        return optimizer

    return make_optimizer


STEPS_COUNTED_ON = Fault(
    name="steps-counted-on",
    numbers=(57,),
    what="the optimizer begins with empty moments and the step count of another stage",
    plant=lambda: patched("truing.learner.learner:make_optimizer", _steps_counted_on),
    expected=("OPT003",),
)


def _moments_not_restored(real):
    def restore(learner, folder):
        real(learner, folder)
        learner.optimizer.state.clear()

    return restore


MOMENTS_NOT_RESTORED = Fault(
    name="moments-not-restored",
    numbers=(101,),
    what="a resumed run begins with a new optimizer state",
    plant=lambda: patched("truing.learner.learner:Learner.restore", _moments_not_restored),
    expected=("OPT010",),
    changes={"trainer.ranks": 2, "checkpoint_every": 1},
    resumed_after=2,
)


def _one_weight_not_held(real):
    def step(optimizer, *args):
        weight = optimizer.param_groups[0]["params"][3]
        was = weight.detach().clone()
        norms = real(optimizer, *args)
        with torch.no_grad():
            weight.copy_(was)
        return norms

    return step


ONE_WEIGHT_NOT_HELD = Fault(
    name="one-weight-not-held",
    numbers=(58,),
    what="one weight of many is not updated",
    plant=lambda: patched("truing.learner.step:clip_and_step", _one_weight_not_held),
    expected=("OPT001",),
)


def _optimizer_skips(real):
    def clip_and_step(optimizer, norm, where, *parts):
        norms = [
            float(torch.nn.utils.get_total_norm([p.grad for p in part.values() if p.grad is not None]))
            for part in parts
        ]
        optimizer.zero_grad(set_to_none=True)
        return norms

    return clip_and_step


OPTIMIZER_SKIPS = Fault(
    name="optimizer-skips",
    numbers=(58,),
    what="the optimizer step is skipped",
    plant=lambda: patched("truing.learner.step:clip_and_step", _optimizer_skips),
    expected=("OPT001",),
)


def _schedule_restarted(real):
    first = list[int]()

    def set_learning_rates(learner, step):
        first.append(step)
        real(learner, step - first[0])

    return set_learning_rates


SCHEDULE_RESTARTED = Fault(
    name="schedule-restarted",
    numbers=(100,),
    what="after a resume the schedule of learning rates begins again",
    plant=lambda: patched("truing.learner.learner:Learner.set_learning_rates", _schedule_restarted),
    expected=("OPT004",),
    changes={"trainer.ranks": 2, "optimizer.schedule": "linear", "checkpoint_every": 1},
    resumed_after=2,
    seen=("miles#2661",),
)


def _warm_up_left_out(real):
    return lambda step, steps, peak, cfg: peak


WARM_UP_LEFT_OUT = Fault(
    name="warm-up-left-out",
    numbers=(57,),
    what="the declared warm-up is missing",
    plant=lambda: patched("truing.learner.learner:learning_rate", _warm_up_left_out),
    expected=("OPT004",),
    changes={"optimizer.warmup_steps": 50},
)


def _weight_decay_undeclared(real):
    def make_optimizer(cfg, *parts):
        return real(cfg.model_copy(update={"weight_decay": 10.0}), *parts)

    return make_optimizer


WEIGHT_DECAY_UNDECLARED = Fault(
    name="weight-decay-undeclared",
    numbers=(57,),
    what="weights decay without a declaration",
    plant=lambda: patched("truing.learner.learner:make_optimizer", _weight_decay_undeclared),
    expected=("OPT003",),
)


def _weight_noise(real):
    def collect_samples(trainer, step):
        with torch.no_grad():
            for weight in list(trainer.learner.parameters.values())[:2]:
                weight.add_(1e-6 * torch.randn_like(weight))
        return real(trainer, step)

    return collect_samples


WEIGHT_NOISE = Fault(
    name="weight-noise",
    numbers=(34,),
    what="1e-6 of noise is added to weights before each step",
    plant=lambda: patched("truing.trainer.stage_trainer:StageTrainer.collect_samples", _weight_noise),
    expected=("OPT002", "OPT018"),
)


def _weights_not_restored(real):
    def restore(learner, folder):
        before = [weight.detach().clone() for weight in learner.parameters.values()]
        real(learner, folder)
        with torch.no_grad():
            for weight, initial in zip(learner.parameters.values(), before, strict=True):
                weight.copy_(initial)

    return restore


WEIGHTS_NOT_RESTORED = Fault(
    name="weights-not-restored",
    numbers=(101,),
    what="a resumed run has the optimizer's state of the checkpoint, and the weights of before",
    plant=lambda: patched("truing.learner.learner:Learner.restore", _weights_not_restored),
    expected=("OPT002",),
    changes={"trainer.ranks": 2, "checkpoint_every": 1},
    resumed_after=2,
    seen=("miles#2572",),
)


AT = 7
"""The fourth step of GRPO, after three of supervised fine-tuning."""


def _weights_written_once(real):
    calls = count(1)

    def clip_and_step(optimizer, max_norm, where, *parts):
        norms = real(optimizer, max_norm, where, *parts)
        if next(calls) == AT:
            with torch.no_grad():
                next(iter(parts[0].values())).view(-1)[::7] += 1e-5
        return norms

    return clip_and_step


WEIGHTS_WRITTEN_ONCE = Fault(
    name="weights-written-once",
    numbers=(34,),
    what="some weights of one tensor change by 1e-5 once, after the optimizer step",
    plant=lambda: patched("truing.learner.step:clip_and_step", _weights_written_once),
    expected=("OPT002",),
    changes={"grpo.steps": 6},
)


def _norms_do_not_decay(real):
    def clip_and_step(optimizer, *args):
        whole = optimizer.param_groups
        optimizer.param_groups = [
            {**group, "params": weights, "weight_decay": decay}
            for group in whole
            for decay, weights in (
                (group["weight_decay"], [each for each in group["params"] if each.dim() > 1]),
                (0.0, [each for each in group["params"] if each.dim() == 1]),
            )
        ]
        norms = real(optimizer, *args)
        optimizer.param_groups = whole
        return norms

    return clip_and_step


NORMS_DO_NOT_DECAY = Fault(
    name="norms-do-not-decay",
    numbers=(57,),
    what="the weights of norms are a group of their own, without the declared decay",
    plant=lambda: patched("truing.learner.step:clip_and_step", _norms_do_not_decay),
    expected=("OPT003",),
    changes={"optimizer.weight_decay": 0.1},
)
