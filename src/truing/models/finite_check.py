"""Weights that are numbers: NaN and infinity are told by name, wherever weights come from or go to."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from truing.errors import ModelError, TruingError

SHOWN = 3


def check_finite(
    weights: Mapping[str, Tensor],
    what: str,
    where: object,
    *,
    remedy: str = "",
    error: type[TruingError] = ModelError,
) -> None:
    """Raise where a weight is NaN or infinite: which tensors, and how many of their numbers.

    Args:
        weights: by name; what holds no floating numbers is passed over. One pass, and no copy.
        what: the sentence that the error says.
        where: they come from, or go to.
        remedy: what to do.
        error: its kind.
    """
    found = [name for name, weight in weights.items() if not _all_finite(weight.detach())]
    if found:
        shown = "; ".join(f"{name}: {_counted(weights[name].detach())}" for name in found[:SHOWN])
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise error(
            what,
            got=f"{where}: {len(found)} of {len(weights)} tensors, {shown}{more}",
            expected="finite numbers",
            remedy=remedy,
        )


def saved_tensors(model: nn.Module) -> dict[str, Any]:
    """All that a model's files hold: its parameters, each once, and the buffers that are saved."""
    kept = model.state_dict().keys()
    parameters = dict(model.named_parameters())
    return parameters | {name: buffer for name, buffer in model.named_buffers() if name in kept}


def _all_finite(weight: Tensor) -> bool:
    """NaN and infinity both reach an end of the range."""
    if not weight.is_floating_point() or not weight.numel():
        return True
    return bool(torch.stack(list(weight.aminmax())).isfinite().all())


def _counted(weight: Tensor) -> str:
    """How many entries are which."""
    numbers = {"NaN": int(weight.isnan().sum()), "infinite": int(weight.isinf().sum())}
    told = " and ".join(f"{count:,} {name}" for name, count in numbers.items() if count)
    return f"{told} of {weight.numel():,}"
