"""AdamW over the trainable parameters, its schedule, and the guard before each update."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from truing.config import OptimizerConfig
from truing.errors import NonFiniteError


def make_optimizer(cfg: OptimizerConfig, *parts: Mapping[str, nn.Parameter]) -> torch.optim.AdamW:
    """A group for each part; learning rates are set before each step. Fused, it passes over memory once."""
    return torch.optim.AdamW(
        [{"params": list(parameters.values())} for parameters in parts],
        lr=0.0,
        betas=(cfg.beta1, cfg.beta2),
        eps=cfg.eps,
        weight_decay=cfg.weight_decay,
        fused=True,
    )


def learning_rate(step: int, steps: int, peak: float, cfg: OptimizerConfig) -> float:
    """The rate of update ``step`` (from 0) of a stage of ``steps``: linear warm-up, then the schedule.

    >>> cfg = OptimizerConfig(warmup_steps=2, schedule="linear")
    >>> [learning_rate(step, 4, 1.0, cfg) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if step < cfg.warmup_steps:
        return peak * (step + 1) / cfg.warmup_steps
    done = (step - cfg.warmup_steps) / max(1, steps - cfg.warmup_steps)
    if cfg.schedule == "linear":
        return peak * (1 - done)
    if cfg.schedule == "cosine":
        return peak * (1 + math.cos(math.pi * done)) / 2
    return peak


def check_loss(parts: Mapping[str, Tensor], where: str) -> None:
    """Raise before the backward pass where a term of the loss is not finite."""
    for name, value in parts.items():
        if not torch.isfinite(value):
            raise NonFiniteError(
                f"the {name} term of the loss is {value.item()} at {where}",
                expected="a finite number",
                remedy="look at the step's tokens with `truing tokens RUN`; the weights were not changed",
            )


def clip_and_step(
    optimizer: torch.optim.Optimizer, max_norm: float, where: str, *parts: Mapping[str, nn.Parameter]
) -> list[float]:
    """Clip the gradient of each part to ``max_norm``, update, clear; return the norms before clipping.

    Each part by itself: a critic's large gradient must not shrink the policy's.
    """
    norms = []
    for parameters in parts:
        gradients = [parameter.grad for parameter in parameters.values() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if not torch.isfinite(norm):
            raise _not_finite(parameters, where)
        norms.append(norm)
    for parameters, norm in zip(parts, norms, strict=True):
        torch.nn.utils.clip_grads_with_norm_(parameters.values(), max_norm, norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return [float(norm) for norm in norms]


def _not_finite(parameters: Mapping[str, nn.Parameter], where: str) -> NonFiniteError:
    """Which gradient it is; where each is finite, their squares are too large to be added."""
    for name, parameter in parameters.items():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return NonFiniteError(
                f"the gradient of {name} is not finite at {where}",
                got=f"{int((~torch.isfinite(parameter.grad)).sum())} of {parameter.numel()} entries",
                remedy="lower the learning rate, or look at the step's tokens; the weights were not changed",
            )
    return NonFiniteError(
        f"the norm of the gradient is not finite at {where}",
        got="finite entries that are too large",
        remedy="lower the learning rate, or look at the step's tokens; the weights were not changed",
    )
