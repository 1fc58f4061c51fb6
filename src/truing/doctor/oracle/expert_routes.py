"""A second implementation of recorded expert routes: scores of given experts from a router's logits.

A router returns logits of all experts, scores and ids of the selected ones. The formula from logits to scores
is found on the router's own selection, and then applied to the recorded ids.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from truing.errors import ModelError

Formula = Callable[[Tensor, Tensor], Tensor]
"""Logits [T, E] and ids [T, K] to scores [T, K], up to a constant factor."""

SAME = {torch.float64: 1e-6, torch.float32: 1e-4}
"""Relative difference of scores that rounding explains, by dtype; 0.05 in others."""


def _softmax(logits_TE: Tensor, ids_TK: Tensor) -> Tensor:
    return (logits_TE.gather(1, ids_TK) - logits_TE.logsumexp(1, keepdim=True)).exp()


def _softmax_of_selected(logits_TE: Tensor, ids_TK: Tensor) -> Tensor:
    return logits_TE.gather(1, ids_TK).softmax(1)


def _sigmoid(logits_TE: Tensor, ids_TK: Tensor) -> Tensor:
    return logits_TE.gather(1, ids_TK).sigmoid()


def _sigmoid_of_selected(logits_TE: Tensor, ids_TK: Tensor) -> Tensor:
    selected_TK = logits_TE.gather(1, ids_TK).sigmoid()
    return selected_TK / selected_TK.sum(1, keepdim=True)


FORMULAS: Mapping[str, Formula] = {
    "softmax": _softmax,
    "softmax of the selected": _softmax_of_selected,
    "sigmoid": _sigmoid,
    "sigmoid of the selected": _sigmoid_of_selected,
}


class Selection(NamedTuple):
    """What a router returned: logits of all experts, and scores and ids of the selected ones."""

    logits_TE: Tensor
    scores_TK: Tensor
    ids_TK: Tensor


@contextmanager
def routes_imposed(decoder: nn.Module, routes_TMK: Tensor) -> Iterator[None]:
    """Within the block the routers of a plain forward of one row return the recorded experts.

    Args:
        decoder: of a mixture whose routers return logits, scores and ids.
        routes_TMK: by token, decoder layer and selected expert; negative where nothing is recorded.
    """
    with ExitStack() as stack:
        for layer, router in _routers(decoder):
            handle = router.register_forward_hook(partial(_impose, routes_TMK[:, layer]))
            stack.callback(handle.remove)
        yield


@contextmanager
def selections_of(decoder: nn.Module) -> Iterator[dict[int, Selection]]:
    """Within the block, what the routers return in the last forward, by decoder layer."""
    found: dict[int, Selection] = {}

    def keep(layer: int, module: nn.Module, inputs: Any, output: Any) -> None:
        found[layer] = Selection(*(each.detach() for each in output))

    with ExitStack() as stack:
        for layer, router in _routers(decoder):
            stack.callback(router.register_forward_hook(partial(keep, layer)).remove)
        yield found


def score_error(free: Selection, along: Selection) -> float:
    """Return how far scores along recorded routes are from the router's formula, relative to the largest.

    The formula is that of ``free``, the same router's own selection.
    """
    wide_TE = _wide(along.logits_TE)
    formula, factor = _fitting(_wide(free.logits_TE), free.scores_TK, free.ids_TK)
    expected_TK = factor * formula(wide_TE, along.ids_TK)
    return float((along.scores_TK - expected_TK).abs().max() / expected_TK.abs().max())


def differing_sets(one_TK: Tensor, other_TK: Tensor) -> Tensor:
    """Return where two selections are different sets of experts, in any order: [T] bool."""
    return (one_TK.sort(1).values != other_TK.to(one_TK).sort(1).values).any(1)


def _routers(decoder: nn.Module) -> Iterator[tuple[int, nn.Module]]:
    for name, module in decoder.named_modules():
        layer = next((int(part) for part in name.split(".") if part.isdecimal()), None)
        if layer is not None and type(module).__name__.endswith(("Router", "Gate", "Gating")):
            yield layer, module


def _wide(logits_TE: Tensor) -> Tensor:
    return logits_TE.to(torch.promote_types(logits_TE.dtype, torch.float32))


def _impose(recorded_TK: Tensor, module: nn.Module, inputs: Any, output: Any) -> Any:
    """Return a router's output with the recorded experts."""
    logits_TE, scores_TK, ids_TK = output
    wide_TE = _wide(logits_TE)
    formula, factor = _fitting(wide_TE.detach(), scores_TK.detach(), ids_TK)
    given_TK = torch.full_like(ids_TK, -1)
    rows = min(len(ids_TK), len(recorded_TK))
    given_TK[:rows] = recorded_TK[:rows].to(ids_TK)
    new_TK = torch.where(given_TK >= 0, given_TK, ids_TK)
    return logits_TE, (factor * formula(wide_TE, new_TK)).to(scores_TK.dtype), new_TK


def _fitting(logits_TE: Tensor, scores_TK: Tensor, ids_TK: Tensor) -> tuple[Formula, float]:
    """Return the formula that gives a router's own scores, and its factor."""
    for formula in FORMULAS.values():
        ratio_TK = scores_TK.double() / formula(logits_TE, ids_TK).double()
        factor = float(ratio_TK.median())
        if float((ratio_TK - factor).abs().max()) <= SAME.get(scores_TK.dtype, 0.05) * abs(factor):
            return formula, factor
    raise ModelError(
        "the scores of a router follow no known formula",
        got=f"logits {logits_TE[0].tolist()[:8]} with scores {scores_TK[0].tolist()}",
        expected=", ".join(FORMULAS),
    )
