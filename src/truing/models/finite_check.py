"""A check for NaN and infinity, wherever weights are read or written."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from truing.distributed.sharded_tensors import whole
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
    """Raise if a weight is NaN or infinite; the error names the tensors and counts their elements.

    Args:
        weights: by name; integer tensors are skipped. One pass, no copy.
        what: the first sentence of the error.
        where: the source or target of the weights.
        remedy: what to do.
        error: the class of the error.
    """
    bad = [name for name, weight in weights.items() if not _all_finite(whole(weight.detach()))]
    if bad:
        details = "; ".join(f"{name}: {_counted(whole(weights[name].detach()))}" for name in bad[:SHOWN])
        more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        raise error(
            what,
            got=f"{where}: {len(bad)} of {len(weights)} tensors, {details}{more}",
            expected="finite numbers",
            remedy=remedy,
        )


def saved_tensors(model: nn.Module) -> dict[str, Any]:
    """Return what a model's files hold: its parameters, each once, and its persistent buffers."""
    saved = model.state_dict().keys()
    parameters = dict(model.named_parameters())
    return parameters | {name: buffer for name, buffer in model.named_buffers() if name in saved}


def _all_finite(weight: Tensor) -> bool:
    """Whether all elements are finite; the minimum or maximum shows NaN and infinity."""
    if not weight.is_floating_point() or not weight.numel():
        return True
    return bool(torch.stack(list(weight.aminmax())).isfinite().all())


def _counted(weight: Tensor) -> str:
    """Return a count of the NaN and infinite elements."""
    numbers = {"NaN": int(weight.isnan().sum()), "infinite": int(weight.isinf().sum())}
    counts = " and ".join(f"{count:,} {name}" for name, count in numbers.items() if count)
    return f"{counts} of {weight.numel():,}"
