"""The audit schedule: which updates the doctor audits beyond their record, and with which audits.

Costs are counted in tokens, never in seconds, so a resumed run audits the same updates.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.utils.hooks import RemovableHandle

from truing.instrumentation.cross_check import CrossCheck, alternating, rows_to_check
from truing.instrumentation.draw_audit import AUDITED_ATTEMPTS, draw_audit_facts
from truing.instrumentation.gradient_sum_check import check_gradient_sum
from truing.instrumentation.update_facts import regrade_facts
from truing.learner.learner import Learner
from truing.learner.session import Session
from truing.learner.step import AuditHook
from truing.learner.step_samples import StepSamples
from truing.learner.trace import Trace
from truing.models.digest import quick_sum
from truing.models.lora import frozen_weights, training_mode
from truing.types.sample import Sample
from truing.types.token import Origin
from truing.utils.memory import is_out_of_memory, release_freed_memory

BUDGET_SHARES = {"weights": 0.2, "audit": 0.4, "rows": 0.2, "gradient": 0.2}
"""Shares of the budget: digests and one synced layer; the audit of sampled tokens; some rows by a plain
forward; every row's gradient, to compare their sum with the optimizer's gradient."""

COST_PER_TOKEN = {"trained": 3.0, "drawn": 2.0, "weights": 30.0, "audit": 2.0, "rows": 12.0, "gradient": 3.0}
"""Cost per token of training, sampling and each audit, in forwards of one token; of weights, per audit.
`python bench/audit_cost.py` measures them."""

AUDITED_FAMILIES = ("RAT", "SMP", "REF", "KLD", "OPT", "DST")
"""Rule families whose findings request an audit of the next update at any cost."""


@dataclass
class AuditBudget:
    """Budget of one kind of audit, in forwards of a token; in seconds with another trainer."""

    share: float  # of the elapsed cost
    minimum: float = 0.0  # always allowed
    spent: float = 0.0
    last_cost: float = 0.0

    def due(self, elapsed: float) -> bool:
        """Return whether another audit, as costly as the last, is within the budget; the first always is."""
        limit = max(self.minimum, self.share * elapsed)
        return self.last_cost == 0 or self.share == 1 or self.spent + self.last_cost <= limit

    def spend(self, cost: float) -> None:
        """Add the cost of an audit."""
        self.last_cost = cost
        self.spent += cost

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the seconds of the block."""
        start = time.perf_counter()
        yield
        self.spend(time.perf_counter() - start)


class AuditSchedule:
    """Audits the first update of a stage, and later ones as often as the budget allows."""

    def __init__(
        self, budget: float, past_facts: Iterable[Mapping[str, Any]] = (), *, requested: bool = False
    ) -> None:
        """Start a schedule, or continue it after recorded updates of the stage.

        Args:
            budget: share of audits in what a stage computes, in [0, 1]; at 1 every update is audited.
            past_facts: facts of the stage's updates so far.
            requested: whether to audit the next update at any cost.
        """
        self.budgets = {
            name: AuditBudget(1 if budget == 1 else share * budget) for name, share in BUDGET_SHARES.items()
        }
        self.requested = requested
        self.update_cost = 0.0  # of all updates so far, in forwards of a token
        self.base_digest = ""  # of the weights below the adapter
        self.audit_costs: dict[str, float] = {}  # of the current update
        self.pending_hook: RemovableHandle | None = None  # of the gradient check; waits for the optimizer
        self.gradient_tokens = 0  # that the gradient check of the current update computes
        for facts in past_facts:
            self._count(facts.get("audit_cost", {}))
            self.base_digest = self.base_digest or facts.get("frozen", {}).get("declared", "")

    def _count(self, costs: Mapping[str, float]) -> None:
        """Add the cost of an update and of its audits."""
        self.update_cost += costs.get("update", 0.0)
        for name in costs.keys() & self.budgets.keys():
            self.budgets[name].spend(costs[name])

    def cost_fact(self, step_samples: StepSamples, traces: Sequence[Trace]) -> dict[str, Any]:
        """Count the update; return the fact ``looks``: the cost of the update and of its audits."""
        rows = (*step_samples.samples, *step_samples.untrained)
        sampled = sum(int((row.origin == Origin.SAMPLED).sum()) for row in rows)
        computed = sum(trace.tokens_computed for trace in traces)
        costs = {
            "update": COST_PER_TOKEN["trained"] * computed + COST_PER_TOKEN["drawn"] * sampled,
            **self.audit_costs,
        }
        self._count(costs)
        self.audit_costs = {}
        return {"audit_cost": costs}

    def next_audit(
        self,
        session: Session,
        stage: str,
        update_index: int,
        step_samples: StepSamples,
        facts: dict[str, Any],
    ) -> AuditHook | None:
        """Return a hook that audits an update and adds to its ``facts``; None if no audit is due."""
        due = [
            name for name, budget in self.budgets.items() if self.requested or budget.due(self.update_cost)
        ]
        self.requested = False
        if self.pending_hook is not None:  # of the previous update; it never ran if that was skipped
            self.pending_hook.remove()
        if not due:
            return None

        def audit(learner: Learner, minibatch: Sequence[Sample]) -> None:
            cross_check = CrossCheck(session, stage, update_index)
            key, ordered = (session.recipe.seed, stage, update_index), alternating(learner.shares(minibatch))
            audits = {
                "weights": lambda: self._weights(cross_check, learner),
                "audit": lambda: self._draws(session, learner, step_samples, key, facts),
                "rows": lambda: (
                    cross_check.row_facts(learner, ordered) | cross_check.gradient_facts(learner, ordered)
                ),
                "gradient": lambda: self._check_gradient_sum(
                    session, learner, minibatch, update_index, facts
                ),
            }
            self.gradient_tokens = sum(map(len, ordered))  # until the check counts them
            for name in due:
                with self._out_of_memory(name, learner, facts):
                    facts.update(audits[name]())
            costs = _costs(step_samples, ordered) | {"gradient": self.gradient_tokens}
            self.audit_costs = {name: COST_PER_TOKEN[name] * costs[name] for name in due}

        return audit

    @contextmanager
    def _out_of_memory(self, name: str, learner: Learner, facts: dict[str, Any]) -> Iterator[None]:
        """Go on without an audit whose memory runs out; add the fact ``not_audited``. Several ranks end."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if learner.ranks.size > 1 or not is_out_of_memory(error):
                raise
            facts.setdefault("not_audited", []).append(name)
        else:
            return
        training_mode(learner.model)  # an audit computes without dropout
        learner.optimizer.zero_grad(set_to_none=True)
        release_freed_memory()  # after the error, whose frames hold tensors

    def _weights(self, cross_check: CrossCheck, learner: Learner) -> dict[str, Any]:
        """Return facts on weights that must not change, and on the sampler's weights."""
        facts = cross_check.weight_facts(learner)
        if cross_check.session.recipe.lora:
            digest = quick_sum(frozen_weights(learner.model))
            self.base_digest = self.base_digest or digest
            facts["frozen"] = {"digest": digest, "declared": self.base_digest}
        return facts

    def _check_gradient_sum(
        self,
        session: Session,
        learner: Learner,
        minibatch: Sequence[Sample],
        update_index: int,
        facts: dict[str, Any],
    ) -> dict[str, Any]:
        """Start the check of the gradient sum; not with dropout, which is random."""
        if not (session.recipe.lora and session.recipe.lora.dropout > 0):
            self.pending_hook, self.gradient_tokens = check_gradient_sum(
                learner, minibatch, update_index, facts
            )
        return {}

    def _draws(
        self,
        session: Session,
        learner: Learner,
        step_samples: StepSamples,
        key: tuple[object, ...],
        facts: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the audit of sampled tokens, and rewards computed again."""
        if learner.algorithm.source != "rollouts":
            return {}
        rows = [*step_samples.samples, *step_samples.untrained]
        regraded = regrade_facts(step_samples.rollouts, session.env.rewards, session.workers.grade)
        if session.recipe.engine.ahead:
            return {"regraded": regraded}  # older weights sampled: the trainer lacks their distribution
        engine = facts.get("publication", {}).get("rows", {}).get("largest", 0.0)
        audit = draw_audit_facts(learner, rows, key, session.engine.draws, engine)
        return {"audit": audit, "regraded": regraded}


def _costs(step_samples: StepSamples, minibatch: Sequence[Sample]) -> dict[str, float]:
    """Return the tokens that each kind of audit but ``gradient`` computes; for weights, one audit."""
    rows = [*step_samples.samples, *step_samples.untrained]
    sampled = [len(row) for row in rows if (row.origin == Origin.SAMPLED).any()]
    return {
        "weights": 1.0,
        "audit": sum(sampled) * min(1.0, AUDITED_ATTEMPTS / len(sampled)) if sampled else 0.0,
        "rows": float(sum(map(len, rows_to_check(minibatch)))),
    }
