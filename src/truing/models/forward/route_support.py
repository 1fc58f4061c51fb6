"""Whether recorded expert routes can be replayed in a model: each router is tried once."""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.distributed.sharding import whole_parameters
from truing.models.forward.expert_routes import routers_of, selecting

PROBES = 16
"""Hidden states on which a router is tried."""

_REASONS: WeakKeyDictionary[PreTrainedModel, str] = WeakKeyDictionary()


def is_moe(causal: PreTrainedModel) -> bool:
    """Whether a model has routed experts."""
    names = {type(module).__name__ for module in causal.get_decoder().modules()}
    return bool(routers_of(causal)) or any(name.endswith(("Experts", "SparseMoeBlock")) for name in names)


def why_no_replay(causal: PreTrainedModel) -> str:
    """Return why recorded routes cannot be replayed in this model; "" if they can. It is tried once."""
    if causal not in _REASONS:
        _REASONS[causal] = _try_routers(causal)
    return _REASONS[causal]


@torch.no_grad()
def _try_routers(causal: PreTrainedModel) -> str:
    """Replay ids that a router would not select; return what does not work."""
    kind, routers = causal.config.get_text_config().model_type, routers_of(causal)
    if not routers:
        return f"{kind} selects its experts outside a router"
    for router in routers.values():
        with whole_parameters(router.modules()):
            reason = _try_router(router)
        if reason:
            return f"the router of {kind} {reason}"
    return ""


def _try_router(router: nn.Module) -> str:
    """Return why a router's selection cannot be replaced; "" if it can."""
    weight: Any = router.weight
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(PROBES, weight.shape[1], generator=random).to(weight)
    call = partial(router, hidden)
    with selecting(router, None, None) as own:
        _quietly(call)
    if len(own.selected) != 1:
        return "does not select its experts by one topk over all of them"
    last_RK = (own.selected[0] + 1) % len(weight)
    with selecting(router, last_RK, None):
        outputs = _quietly(call)
    scores = [each for each in outputs if each.shape == last_RK.shape and each.is_floating_point()]
    ids = [each for each in outputs if each.shape == last_RK.shape and not each.is_floating_point()]
    if len(scores) != 1 or len(ids) != 1 or not torch.equal(ids[0].to(last_RK), last_RK):
        return "does not return the selected experts with a score each"
    if not bool((scores[0] != 0).all()):
        return "has no score for experts that it would not select"
    return ""


def _quietly(call: Callable[[], Any]) -> list[Tensor]:
    """Return the tensors that a router returns; none if it takes other arguments."""
    try:
        outputs = call()
    except TypeError:
        return []
    return [each for each in outputs if isinstance(each, Tensor)] if isinstance(outputs, tuple) else []
