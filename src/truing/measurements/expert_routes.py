"""Expert routes of a step: what the engine recorded, what the trainer takes, and what rounding changes.

The rows of the cross-check are computed one by one, so that the routers see their tokens in order. Placements
are compared over the sampled tokens: prompts are alike, and so are their routes.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import cast

import torch
from torch import Tensor

from truing.doctor.oracle.expert_routes import Selection, differing_sets, score_error, selections_of
from truing.learner.learner import Learner
from truing.learner.optimizer_step import loss_mask
from truing.measurements.checked_rows import checked_rows, without_dropout
from truing.measurements.measurement import Measurement
from truing.models.forward.autocast import autocast
from truing.models.forward.collate import collate
from truing.models.forward.expert_routes import routers_of
from truing.models.forward.rounding_noise import random_rounding
from truing.models.forward.route_support import why_no_replay
from truing.models.forward.score import causal_model, computed_precision, score
from truing.types.sample import Sample
from truing.types.token import Origin
from truing.types.token_facts import Placements, Routes

Selections = Mapping[int, Selection]
"""By decoder layer: the selections of one row's tokens but the last."""


class ExpertRoutes(Measurement):
    """The experts that the engine recorded, those that the trainer takes, and those that rounding changes."""

    facts = ("routes",)
    cost = "some three forwards of 1 to 4 rows; nothing for a dense model"
    audit = "rows"

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Compute the rows."""
        learner = self.step.learner
        rows = checked_rows(self.step, minibatch)
        causal = causal_model(learner.model)
        if rows and routers_of(causal) and not why_no_replay(causal):
            with without_dropout(learner):
                self.found = {"routes": route_fact(learner, rows)}


@torch.no_grad()
def route_fact(learner: Learner, rows: Sequence[Sample]) -> Routes:
    """Return the fact ``routes``."""
    causal = causal_model(learner.model)
    free = [_selections(learner, row, replay=False) for row in rows]
    rounded = [_selections(learner, row, replay=False, seed=1 + i) for i, row in enumerate(rows)]
    differing = [
        differing_sets(each[layer].ids_TK, other[layer].ids_TK)
        for each, other in zip(free, rounded, strict=True)
        for layer in each
    ]
    with autocast(causal):
        device = computed_precision(learner.model)
    fact: Routes = {"device": device, "rounding": float(torch.cat(differing).double().mean())}
    known = [(row, own) for row, own in zip(rows, free, strict=True) if row.routes is not None]
    if known:
        recorded = [row for row, _ in known]
        along = [_selections(learner, row, replay=True) for row in recorded]
        fact["record"] = placements(recorded, [own for _, own in known])
        fact["replay"] = placements(recorded, along)
        errors = [
            score_error(own[layer], taken[layer])
            for (_, own), taken in zip(known, along, strict=True)
            for layer in own
        ]
        fact["scores"] = max(errors)
    return fact


def placements(rows: Sequence[Sample], selections: Sequence[Selections]) -> Placements:
    """Return the share of recorded sets that differ from ``selections``, as recorded and placed otherwise.

    ``here`` as recorded; ``before`` and ``after`` if each token is recorded with the routes of the token
    before or after it; ``other`` if a row had the record of the row that fits best. ``sets`` is their number.
    """
    places: Mapping[str, Callable[[Tensor], Tensor]] = {
        "here": lambda routes: routes,
        "before": lambda routes: routes.roll(-1, 0),
        "after": lambda routes: routes.roll(1, 0),
    }
    shares = {
        name: _mean(
            [_differ(row, own, place(_routes(row))) for row, own in zip(rows, selections, strict=True)]
        )
        for name, place in places.items()
    }
    here = [_differ(row, own, _routes(row)) for row, own in zip(rows, selections, strict=True)]
    if len(rows) > 1:
        best = [
            min(
                (_differ(row, own, _routes(other)) for other in rows if other is not row),
                key=lambda differ: _mean([differ]),
            )
            for row, own in zip(rows, selections, strict=True)
        ]
        shares["other"] = _mean(best)
    return cast("Placements", {"sets": float(sum(map(len, here))), **shares})


def _differ(row: Sample, own: Selections, routes: Tensor) -> Tensor:
    """Return which sets of a row's sampled tokens differ from ``routes``, where both are known: [n] bool."""
    length = min(len(row) - 1, len(routes))
    sampled_T = row.origin[:length] == Origin.SAMPLED
    parts = []
    for layer, selection in own.items():
        recorded_TK = routes[:length, layer]
        compared_T = sampled_T & (recorded_TK[:, 0] >= 0)
        parts.append(differing_sets(selection.ids_TK[:length].cpu()[compared_T], recorded_TK[compared_T]))
    return torch.cat(parts)


def _routes(row: Sample) -> Tensor:
    assert row.routes is not None
    return row.routes


def _mean(parts: Sequence[Tensor]) -> float:
    """Return the share of true entries; 0 of none."""
    together = torch.cat(list(parts)).double()
    return float(together.mean()) if len(together) else 0.0


def _selections(learner: Learner, row: Sample, *, replay: bool, seed: int | None = None) -> Selections:
    """Return what the routers select for a row alone; with ``seed`` under random rounding."""
    batch = collate([row])
    rounding = nullcontext() if seed is None else random_rounding(learner.model, seed)
    with rounding, selections_of(causal_model(learner.model).get_decoder()) as found:
        score(learner.model, batch, loss_mask(batch), replay_routes=replay)
    return dict(found)
