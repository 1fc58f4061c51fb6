"""AdamW over the trainable parameters: gradient clipping, checks for non-finite values."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from truing.config import OptimizerConfig
from truing.distributed.sharded_tensors import whole
from truing.errors import NonFiniteError


def make_optimizer(cfg: OptimizerConfig, *parts: Mapping[str, nn.Parameter]) -> torch.optim.AdamW:
    """Return fused AdamW with one parameter group per part; ``Learner.set_learning_rates`` sets the rates."""
    return torch.optim.AdamW(
        [{"params": list(parameters.values())} for parameters in parts],
        lr=0.0,
        betas=(cfg.beta1, cfg.beta2),
        eps=cfg.eps,
        weight_decay=cfg.weight_decay,
        fused=True,
    )


def clip_and_step(
    optimizer: torch.optim.Optimizer, max_norm: float, step_name: str, *parts: Mapping[str, nn.Parameter]
) -> list[float]:
    """Clip each part's gradient to ``max_norm``, step, clear gradients; return the norms before clipping.

    Parts are clipped separately, so that a large critic gradient does not shrink the policy's.
    """
    norms = []
    for parameters in parts:
        norm = gradient_norm(parameters)
        if not torch.isfinite(norm):
            raise _not_finite(parameters, step_name)
        norms.append(norm)
    for parameters, norm in zip(parts, norms, strict=True):
        torch.nn.utils.clip_grads_with_norm_(parameters.values(), max_norm, norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return [float(norm) for norm in norms]


def gradient_norm(parameters: Mapping[str, nn.Parameter]) -> Tensor:
    """Return the L2 norm of all gradients, over the shards of all ranks."""
    gradients = [parameter.grad for parameter in parameters.values() if parameter.grad is not None]
    return whole(torch.nn.utils.get_total_norm(gradients))


def _not_finite(parameters: Mapping[str, nn.Parameter], step_name: str) -> NonFiniteError:
    """Return the error that names the first gradient with non-finite entries; else the norm overflows."""
    for name, parameter in parameters.items():
        finite = None if parameter.grad is None else torch.isfinite(whole(parameter.grad))
        if finite is not None and not finite.all():
            return NonFiniteError(
                f"the gradient of {name} is not finite at {step_name}",
                got=f"{int((~finite).sum())} of {parameter.numel()} entries",
                remedy="lower the learning rate, or inspect the step's tokens; the weights are unchanged",
            )
    return NonFiniteError(
        f"the norm of the gradient is not finite at {step_name}",
        got="finite entries whose squares overflow",
        remedy="lower the learning rate, or inspect the step's tokens; the weights are unchanged",
    )
