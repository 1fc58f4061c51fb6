"""Expert routes: the experts that each layer selects for a token, and a forward along recorded ones.

Engine and trainer round differently, so near a tie their routers select other experts, and then compute other
functions. Within ``use_routes`` the *selection* is the recorded one; the scores of the selected experts are
the router's own, read from its probabilities of all experts, so an expert that it would not select now
still gets the gradient of its score.

A router selects by one ``topk`` over all experts. Only this call is replaced; the router's own code does
everything else, such as normalising the selected scores.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from truing.errors import ModelError
from truing.types.token import NO_ROUTE


@dataclass
class RouteCount:
    """Sets of experts with a record, and those for which the router would have selected another set."""

    compared: list[Tensor] = field(default_factory=list)
    different: list[Tensor] = field(default_factory=list)

    def totals(self) -> tuple[int, int]:
        """Return sets that were compared, and those that differ."""
        if not self.compared:
            return 0, 0
        return int(torch.stack(self.compared).sum()), int(torch.stack(self.different).sum())


class SelectRoutes(TorchFunctionMode):
    """Replaces a router's selection: ``topk`` over its experts gives the recorded ids and their scores."""

    def __init__(self, routes_RK: Tensor | None, experts: int, chosen: int, count: RouteCount | None) -> None:
        super().__init__()
        self.routes_RK, self.experts, self.chosen, self.count = routes_RK, experts, chosen, count
        self.selected: list[Tensor] = []  # the ids of each selection, [R, K]

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Let every function compute but the selection."""
        result = func(*args, **(kwargs or {}))
        if func not in (torch.topk, Tensor.topk) or not self._selects(args[0], result.indices):
            return result
        own_RK = result.indices
        if self.routes_RK is None:
            self.selected.append(own_RK)
            return result
        if self.routes_RK.shape != own_RK.shape:
            raise ModelError(
                "recorded routes do not fit the tokens of a forward",
                got=f"{tuple(self.routes_RK.shape)}",
                expected=f"{tuple(own_RK.shape)}: tokens and experts per token",
            )
        recorded_RK = self.routes_RK.to(own_RK)
        known_R1 = recorded_RK[:, :1] >= 0
        ids_RK = torch.where(known_R1, recorded_RK, own_RK)
        if self.count is not None:
            other_R = (own_RK.sort(1).values != recorded_RK.sort(1).values).any(1) & known_R1[:, 0]
            self.count.compared.append(known_R1.sum())
            self.count.different.append(other_R.sum())
        self.selected.append(ids_RK)
        return torch.return_types.topk((scores_at(args[0], ids_RK), ids_RK))

    def _selects(self, scores: Tensor, indices: Tensor) -> bool:
        """Whether a ``topk`` selects experts; a router may also select groups of them."""
        return scores.ndim == 2 and (scores.shape[1], indices.shape[1]) == (self.experts, self.chosen)


def scores_at(scores_RE: Tensor, ids_RK: Tensor) -> Tensor:
    """Return the scores of given experts from those of all, with their gradient: [R, K]."""
    return scores_RE.gather(-1, ids_RK)


def routers_of(causal: PreTrainedModel) -> dict[int, nn.Module]:
    """Return the routers of a model by their decoder layer; none for a dense model."""
    found: dict[int, nn.Module] = {}
    for name, module in causal.get_decoder().named_modules():
        if _is_router(module):
            layer = next((int(part) for part in name.split(".") if part.isdecimal()), None)
            if layer is not None and layer not in found:
                found[layer] = module
    return found


@contextmanager
def use_routes(
    causal: PreTrainedModel, routes_RMK: Tensor, count: RouteCount | None = None
) -> Iterator[None]:
    """Within the block routers select the recorded experts.

    Args:
        causal: a model for which ``why_no_replay`` is "".
        routes_RMK: by token of the forward, decoder layer and selected expert; NO_ROUTE without a record.
        count: counts the sets for which the router would have selected another one.

    Raises:
        ModelError: The routes are of another model.
    """
    routers = routers_of(causal)
    experts = min(len(_weight(router)) for router in routers.values())
    if routes_RMK.shape[1] <= max(routers) or int(routes_RMK.max()) >= experts:
        raise ModelError(
            "recorded routes are of another model",
            got=f"{routes_RMK.shape[1]} layers, experts up to {int(routes_RMK.max())}",
            expected=f"more than {max(routers)} layers, experts below {experts}",
            remedy="serve the recipe's model",
        )
    with ExitStack() as stack:
        for layer, router in routers.items():
            stack.enter_context(selecting(router, routes_RMK[:, layer], count))
        yield


@contextmanager
def record_routes(causal: PreTrainedModel) -> Iterator[Callable[[], Tensor]]:
    """Within the block routers record what they select: ``()`` gives [R, layers, K] int16 of all forwards.

    Layers without a router have NO_ROUTE.
    """
    with ExitStack() as stack:
        modes = {
            layer: stack.enter_context(selecting(router, None, None))
            for layer, router in routers_of(causal).items()
        }

        def recorded() -> Tensor:
            by_layer = {layer: torch.cat(mode.selected) for layer, mode in modes.items()}
            some = next(iter(by_layer.values()))
            layers = causal.config.get_text_config().num_hidden_layers
            routes_RMK = torch.full((len(some), layers, some.shape[1]), NO_ROUTE, dtype=torch.int16)
            for layer, ids_RK in by_layer.items():
                routes_RMK[:, layer] = ids_RK.to("cpu", torch.int16)
            return routes_RMK

        yield recorded


def _weight(router: nn.Module) -> Tensor:
    """Return a router's weight: [E, D]."""
    weight: Any = router.weight
    return weight


def _is_router(module: nn.Module) -> bool:
    weight, chosen = getattr(module, "weight", None), getattr(module, "top_k", None)
    is_named = type(module).__name__.endswith(("Router", "Gate", "Gating"))
    return is_named and isinstance(chosen, int) and isinstance(weight, Tensor) and weight.ndim == 2


@contextmanager
def selecting(
    router: nn.Module, routes_RK: Tensor | None, count: RouteCount | None
) -> Iterator[SelectRoutes]:
    """Within the block a router selects ``routes_RK``; it records its own selection if that is None."""
    chosen: Any = router.top_k
    mode = SelectRoutes(routes_RK, len(_weight(router)), chosen, count)
    before, real = router.__dict__.get("forward"), router.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return real(*args, **kwargs)

    router.forward = forward  # type: ignore[method-assign]
    try:
        yield mode
    finally:
        if before is None:
            del router.forward
        else:
            router.forward = before  # type: ignore[method-assign]
