"""When the doctor looks at an update beyond its record, and at what.

Looks go by what was counted, never by the clock: a resumed run looks at the same updates.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.utils.hooks import RemovableHandle

from truing.instrumentation.cross_check import CrossCheck, rows_to_check
from truing.instrumentation.draw_audit import AUDITED_ATTEMPTS, draw_audit_facts
from truing.instrumentation.gradient_sum_check import check_gradient_sum
from truing.instrumentation.update_facts import regrade_facts
from truing.learner.learner import Learner
from truing.learner.session import Session
from truing.learner.step import AuditHook, Trace
from truing.learner.step_samples import StepSamples
from truing.models.digest import quick_sum
from truing.models.lora import frozen_weights
from truing.types.sample import Sample
from truing.types.token import Origin

BUDGET_SHARES = {"weights": 0.2, "audit": 0.4, "rows": 0.2, "gradient": 0.2}
"""Of the budget: digests and one synced layer; bets on the sampler; some rows computed a second time by a
plain forward; every row's gradient, to compare their sum with what the optimiser gets."""

COST_PER_TOKEN = {"trained": 3.0, "drawn": 2.0, "weights": 30.0, "audit": 2.0, "rows": 12.0, "gradient": 3.0}
"""What a token costs, in forwards of one token: to train on, to draw, and to look at; of weights, a look.
`python bench/looks.py` measures them."""

AUDITED_FAMILIES = ("RAT", "SMP", "REF", "KLD", "OPT")
"""Families of rules whose suspicion is worth a look at the next update, whatever it costs."""


@dataclass
class AuditBudget:
    """One kind of look, and what it has cost: forwards of a token, or seconds beside another trainer."""

    share: float  # of all that was spent
    minimum: float = 0.0  # that it may cost in any case
    spent: float = 0.0
    last_cost: float = 0.0

    def due(self, elapsed: float) -> bool:
        """Whether another, as costly as the last one, is within its share; the first always is."""
        most = max(self.minimum, self.share * elapsed)
        return self.last_cost == 0 or self.share == 1 or self.spent + self.last_cost <= most

    def spend(self, cost: float) -> None:
        """Count a look of this kind."""
        self.last_cost = cost
        self.spent += cost

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the seconds of a look of this kind."""
        since = time.perf_counter()
        yield
        self.spend(time.perf_counter() - since)


class AuditSchedule:
    """When a stage is looked at: at its first update, and then as often as its budget allows."""

    def __init__(
        self, budget: float, past_facts: Sequence[Mapping[str, Any]] = (), *, requested: bool = False
    ) -> None:
        """Begin, or go on after the updates of the stage that are on record.

        Args:
            budget: the looks' share of what a stage computes, in [0, 1]; at 1 every update is looked at.
            before: facts of the stage's updates so far.
            asked: whether the next update is to be looked at, whatever it costs.
        """
        self.budgets = {
            name: AuditBudget(1 if budget == 1 else share * budget) for name, share in BUDGET_SHARES.items()
        }
        self.requested = requested
        self.update_cost = 0.0  # what the updates have cost, in forwards of a token
        self.base_digest = ""  # a digest of what lies below the adapter
        self.audit_costs: dict[str, float] = {}  # of the looks at the update at hand
        self.pending_hook: RemovableHandle | None = None  # an update that is still to come
        for facts in past_facts:
            self._count(facts.get("looks", {}))
            self.base_digest = self.base_digest or facts.get("frozen", {}).get("declared", "")

    def _count(self, passes: Mapping[str, float]) -> None:
        """Count an update and the looks at it."""
        self.update_cost += passes.get("update", 0.0)
        for name in passes.keys() & self.budgets.keys():
            self.budgets[name].spend(passes[name])

    def cost_fact(self, drawn: StepSamples, traces: Sequence[Trace]) -> dict[str, Any]:
        """Count the update that was made; the fact ``looks`` is what it and the looks at it have cost."""
        sampled = sum(int((row.origin == Origin.SAMPLED).sum()) for row in (*drawn.samples, *drawn.untrained))
        computed = sum(trace.tokens_computed for trace in traces)
        passes = {
            "update": COST_PER_TOKEN["trained"] * computed + COST_PER_TOKEN["drawn"] * sampled,
            **self.audit_costs,
        }
        self._count(passes)
        self.audit_costs = {}
        return {"looks": passes}

    def next_audit(
        self, session: Session, stage: str, update_index: int, drawn: StepSamples, facts: dict[str, Any]
    ) -> AuditHook | None:
        """A look that adds to the facts ``found`` of an update; None where none is due."""
        due = [name for name, part in self.budgets.items() if self.requested or part.due(self.update_cost)]
        self.requested = False
        if self.pending_hook is not None:  # that update was held back
            self.pending_hook.remove()
        if not due:
            return None

        def at(learner: Learner, minibatch: Sequence[Sample]) -> None:
            witness = CrossCheck(session, stage, update_index)
            kinds = {
                "weights": lambda: self._weights(witness, learner),
                "audit": lambda: self._draws(
                    session, learner, drawn, (session.recipe.seed, stage, update_index)
                ),
                "rows": lambda: witness.row_facts(learner, minibatch),
                "gradient": lambda: self._check_gradient_sum(
                    session, learner, minibatch, update_index, facts
                ),
            }
            for name in due:
                facts.update(kinds[name]())
            costs = _costs(drawn, minibatch)
            self.audit_costs = {name: COST_PER_TOKEN[name] * costs[name] for name in due}

        return at

    def _weights(self, witness: CrossCheck, learner: Learner) -> dict[str, Any]:
        """What must stand still, and what the sampler has."""
        found = witness.weight_facts(learner)
        if witness.session.recipe.lora:
            digest = quick_sum(frozen_weights(learner.model))
            self.base_digest = self.base_digest or digest
            found["frozen"] = {"digest": digest, "declared": self.base_digest}
        return found

    def _check_gradient_sum(
        self,
        session: Session,
        learner: Learner,
        minibatch: Sequence[Sample],
        turn: int,
        found: dict[str, Any],
    ) -> dict[str, Any]:
        """Rows gone backward alone; dropout would make them others."""
        if not (session.recipe.lora and session.recipe.lora.dropout > 0):
            self.pending_hook = check_gradient_sum(learner, minibatch, turn, found)
        return {}

    def _draws(
        self, session: Session, learner: Learner, drawn: StepSamples, key: tuple[object, ...]
    ) -> dict[str, Any]:
        """Bets on what was drawn, and grades given again."""
        if learner.algorithm.source != "rollouts":
            return {}
        everybody = [*drawn.samples, *drawn.untrained]
        again = regrade_facts(drawn.rollouts, session.env.rewards)
        return {"audit": draw_audit_facts(learner, everybody, key), "regraded": again}


def _costs(drawn: StepSamples, minibatch: Sequence[Sample]) -> dict[str, float]:
    """Tokens that each kind of look computes; of weights, one look."""
    everybody = [*drawn.samples, *drawn.untrained]
    sampled = [len(row) for row in everybody if (row.origin == Origin.SAMPLED).any()]
    return {
        "weights": 1.0,
        "audit": sum(sampled) * min(1.0, AUDITED_ATTEMPTS / len(sampled)) if sampled else 0.0,
        "rows": float(sum(map(len, rows_to_check(minibatch)))),
        "gradient": float(sum(map(len, minibatch))),
    }
