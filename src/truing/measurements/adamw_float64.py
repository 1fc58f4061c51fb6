"""One weight after an optimizer step, computed a second time by AdamW's formula in float64."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from truing.config.stages import PolicyStage, PpoConfig
from truing.distributed.sharded_tensors import whole
from truing.doctor.oracle.learning_rate import declared_rate
from truing.measurements.measurement import MeasuredStep, Measurement
from truing.models.forward.rounding_noise import is_coarse
from truing.models.forward.score import computed_precision
from truing.types.facts import Facts
from truing.types.weight_facts import AdamW
from truing.utils.rng import seed_of

ENTRIES = 4096
"""Compared entries of the weight."""

STRIDE = 7919
"""A prime: successive steps compare weights of other layers, and each weight has its turn."""


class AdamWStep(Measurement):
    """One weight of policy or critic after one optimizer step, beside AdamW's formula in float64.

    The key draws which of them. And settings of the optimizer, of policy and critic, that differ from the
    recipe's in any optimizer step, and its rates in the first.
    """

    facts = ("adamw", "optimizer_settings", "rates")
    cost = "4,096 entries of one weight"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        groups = step.learner.parameter_groups()
        turn, group = divmod(step.step_index, len(groups))
        names = sorted(groups[group])
        self._name = names[turn * STRIDE % len(names)]
        self._weight = groups[group][self._name]
        self._expected: RecomputedWeight | None = None
        self._optimizer_steps, stage = 0, step.learner.setting.stage
        declared = stage.inner_epochs * stage.minibatches if isinstance(stage, PolicyStage) else 1
        self._chosen = 1 + seed_of(step.recipe.seed, step.stage, step.step, "recomputed") % declared

    def before_optimizer(self) -> None:
        """Compare the optimizer's settings, and compute the weight that AdamW must leave."""
        self._optimizer_steps += 1
        if self._optimizer_steps == 1:  # settings that change later are those of each optimizer step
            self.found["rates"] = [float(each["lr"]) for each in self.step.learner.optimizer.param_groups]
        if other := self._other_settings():
            self.found["optimizer_settings"] = other
        if self._optimizer_steps == self._chosen:
            learner = self.step.learner
            self._expected = recompute_weight(
                self._name, self._weight, learner.optimizer, learner.optimizer_cfg
            )

    def after_optimizer(self) -> None:
        """Compare the weight with it."""
        if self._optimizer_steps == self._chosen:
            self._compare()

    def after_step(self) -> Facts:
        """Return the difference; of the last optimizer step, from the weight at the end of the step."""
        if self._optimizer_steps == self._chosen:
            self._compare()
        return self.found

    def _compare(self) -> None:
        if self._expected is not None:
            fact = self._expected.fact()
            share = self._expected.swallowed_share()
            if is_coarse(computed_precision(self.step.learner.model)) and not math.isnan(share):
                fact["swallowed"] = share
            if self.step.step == 0:  # later it goes on from what the step before left, which OPT010 compares
                fact["count"], fact["most"] = self._expected.count, self._chosen
            self.found["adamw"] = fact

    def _other_settings(self) -> list[str]:
        """Return the settings of policy and critic that differ from the recipe's."""
        cfg, stage = self.step.learner.optimizer_cfg, self.step.learner.setting.stage
        schedule = cfg.warmup_steps, cfg.schedule
        declared = {"betas": (cfg.beta1, cfg.beta2), "eps": cfg.eps, "weight_decay": cfg.weight_decay}
        peaks = {"policy": stage.learning_rate}
        if isinstance(stage, PpoConfig):
            peaks["critic"] = stage.value_learning_rate
        by_group = {
            who: {**declared, "lr": declared_rate(self.step.step, peak, stage.steps, *schedule)}
            for who, peak in peaks.items()
        }
        groups = self.step.learner.optimizer.param_groups
        if len(groups) != len(by_group):
            return [f"groups of parameters: {len(groups)}, declared {len(by_group)}"]
        return [
            f"{name} of the {who}: {group[name]}, declared {value}"
            for (who, settings), group in zip(by_group.items(), groups, strict=True)
            for name, value in settings.items()
            if not np.allclose(group[name], value, rtol=1e-6, atol=0.0)
        ]


class AdamWSettings(Protocol):
    """The declared settings of AdamW."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float


@dataclass(frozen=True, eq=False)
class RecomputedWeight:
    """A weight before an optimizer step, and the expected weight after it."""

    name: str
    weight: Tensor
    before: Tensor  # [n] float64
    expected: Tensor
    count: int  # of optimizer steps by the optimizer's own state, with this one

    def fact(self) -> AdamW:
        """Return the difference from the expected weight; call it after the optimizer step."""
        return {
            "weight": self.name,
            "largest": float((first_entries(self.weight) - self.expected).abs().max()),
            "step": float((self.expected - self.before).abs().max()),
            # the rounding of a weight in its own dtype
            "rounding": float(torch.finfo(self.weight.dtype).eps * self.before.abs().max()),
        }

    def swallowed_share(self) -> float:
        """Return the share of the entries to change that are as they were; NaN without any.

        Their step is less than half of their last digit, and rounding takes all of it.
        """
        due = self.expected != self.before
        return float((first_entries(self.weight) == self.before)[due].double().mean())


def recompute_weight(
    name: str, weight: Tensor, optimizer: torch.optim.Optimizer, declared: AdamWSettings
) -> RecomputedWeight | None:
    """Return θ − lr (m̂ / (√v̂ + ε) + λ θ) (https://arxiv.org/abs/1711.05101); None without a gradient.

    Args:
        name: of the weight.
        weight: before the optimizer step, with the gradient that the optimizer gets.
        optimizer: for its moments and learning rate.
        declared: the other settings.
    """
    if weight.grad is None:
        return None
    groups = optimizer.param_groups
    rate = next((g["lr"] for g in groups if any(p is weight for p in g["params"])), groups[0]["lr"])
    state = optimizer.state.get(weight, {})
    gradient, before = first_entries(weight.grad), first_entries(weight)
    zero = torch.zeros_like(before)
    first, second = (first_entries(state[key]) if key in state else zero for key in ("exp_avg", "exp_avg_sq"))
    count = (float(state["step"]) if "step" in state else 0.0) + 1
    first = declared.beta1 * first + (1 - declared.beta1) * gradient
    second = declared.beta2 * second + (1 - declared.beta2) * gradient.square()
    divisor = (second / (1 - declared.beta2**count)).sqrt() + declared.eps
    scaled = first / (1 - declared.beta1**count) / divisor
    expected = before - rate * (scaled + declared.weight_decay * before)
    return RecomputedWeight(name, weight, before, expected, int(count))


def first_entries(weight: Tensor) -> Tensor:
    """Return the first entries of a weight, float64, on the CPU."""
    return whole(weight.detach()).reshape(-1)[:ENTRIES].double().cpu().clone()
