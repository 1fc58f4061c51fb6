"""The audit schedule: which updates the doctor audits beyond their record, and with which audits.

Costs are counted in tokens, never in seconds, so a resumed run audits the same updates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils.hooks import RemovableHandle

from truing.config import Recipe
from truing.instrumentation.audit_budget import AuditBudget
from truing.instrumentation.cross_check import CrossCheck, alternating, rows_to_check
from truing.instrumentation.draw_audit import AUDITED_ATTEMPTS, draw_audit_facts
from truing.instrumentation.gradient_sum_check import check_gradient_sum
from truing.instrumentation.update_facts import regrade_facts
from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep
from truing.learner.step import AuditHook
from truing.models.digest import quick_sum
from truing.models.lora import frozen_weights, training_mode
from truing.rollouts.sampler import Sampler
from truing.rollouts.step_samples import StepSamples
from truing.types.sample import Sample
from truing.types.token import Origin
from truing.utils.memory import is_out_of_memory, release_freed_memory

BUDGET_SHARES = {"weights": 0.2, "audit": 0.4, "rows": 0.1, "row_gradient": 0.1, "gradient": 0.2}
"""Shares of the budget: digests and one synced layer; the audit of sampled tokens; some rows by a plain
forward, and their gradient by a plain backward; every row's gradient, whose sum the optimizer must get."""

GROUPS = (("weights", "gradient"), ("rows",), ("audit",), ("row_gradient",))
"""Audits of one update: each group costs about as much as a step, so that no step takes much more than twice
its time. The sum of gradients comes first: it is more specific than what every update checks of it (OPT014).
A forward of rows joins it beside a reference, which is the policy in that update alone (REF002)."""

COST_PER_TOKEN = {
    "trained": 3.0,
    "drawn": 2.0,
    "weights": 30.0,
    "audit": 2.0,
    "rows": 5.0,
    "row_gradient": 6.0,
    "gradient": 3.0,
}
"""Cost per token of training, sampling and each audit, in forwards of one token; of weights, per audit.
`python -m dev.measure.audit_cost` measures them."""

AUDITED_FAMILIES = ("RAT", "SMP", "REF", "KLD", "OPT", "DST")
"""Rule families whose findings request every audit once more, at any cost, in the next updates."""


class AuditSchedule:
    """Audits the first updates of a stage, a group of audits each, and later ones as the budget allows."""

    def __init__(
        self, budget: float, past_facts: Iterable[Mapping[str, Any]] = (), *, requested_in: int = -1
    ) -> None:
        """Start a schedule, or continue it after recorded updates of the stage.

        Args:
            budget: share of audits in what a stage computes, in [0, 1]; at 1 every update has every audit.
            past_facts: facts of the stage's updates so far.
            requested_in: the last update whose findings requested audits; -1 for none.
        """
        self.budgets = {
            name: AuditBudget(1 if budget == 1 else share * budget) for name, share in BUDGET_SHARES.items()
        }
        self.all_at_once = budget == 1
        self.requested_in = requested_in
        self.updates = 0  # of the stage so far
        self.last_update = dict.fromkeys(BUDGET_SHARES, -1)  # with each kind of audit
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
            self.last_update[name] = self.updates
        self.updates += 1

    def request(self) -> None:
        """Request every audit once more, after the findings of the last update."""
        self.requested_in = self.updates - 1

    def due(self, updates: int, *, has_reference: bool) -> list[str]:
        """Return the audits of the next of a stage's ``updates``: those of the group that has waited longest.

        The last update has all that the stage has not had yet.
        """
        missing = [name for name, update in self.last_update.items() if update < 0]
        if missing and self.updates == updates - 1:
            return missing
        due = [
            name
            for name, budget in self.budgets.items()
            if budget.due(self.update_cost) or self.last_update[name] <= self.requested_in
        ]
        if self.all_at_once:
            return due
        groups = [group for names in GROUPS if (group := [name for name in names if name in due])]
        group = min(groups, key=lambda group: min(map(self.last_update.__getitem__, group)), default=[])
        return [*group, "rows"] if has_reference and missing == [*BUDGET_SHARES] else group

    def cost_fact(self, step_samples: StepSamples, steps: Sequence[OptimizerStep]) -> dict[str, Any]:
        """Count the update; return the fact ``looks``: the cost of the update and of its audits."""
        rows = (*step_samples.samples, *step_samples.untrained)
        sampled = sum(int((row.origin == Origin.SAMPLED).sum()) for row in rows)
        computed = sum(each.tokens_computed for each in steps)
        costs = {
            "update": COST_PER_TOKEN["trained"] * computed + COST_PER_TOKEN["drawn"] * sampled,
            **self.audit_costs,
        }
        self._count(costs)
        self.audit_costs = {}
        return {"audit_cost": costs}

    def next_audit(
        self,
        recipe: Recipe,
        sampler: Sampler,
        stage: str,
        update_index: int,
        step_samples: StepSamples,
        facts: dict[str, Any],
    ) -> AuditHook:
        """Return a hook that audits an update, if an audit is due, and adds to its ``facts``."""
        if self.pending_hook is not None:  # of the previous update; it never ran if that was skipped
            self.pending_hook.remove()

        def audit(learner: Learner, minibatch: Sequence[Sample]) -> None:
            steps, has_reference = recipe.stage(stage).steps, learner.reference is not None
            if not (due := self.due(steps, has_reference=has_reference)):
                return
            cross_check = CrossCheck(recipe, sampler, stage, update_index)
            key, ordered = (recipe.seed, stage, update_index), alternating(learner.shares(minibatch))
            audits = {
                "weights": lambda: self._weights(cross_check, learner),
                "audit": lambda: self._draws(recipe, sampler, learner, step_samples, key, facts),
                "rows": lambda: cross_check.row_facts(learner, ordered),
                "row_gradient": lambda: cross_check.gradient_facts(learner, ordered),
                "gradient": lambda: self._check_gradient_sum(recipe, learner, minibatch, update_index, facts),
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
        if cross_check.recipe.lora:
            digest = quick_sum(frozen_weights(learner.model))
            self.base_digest = self.base_digest or digest
            facts["frozen"] = {"digest": digest, "declared": self.base_digest}
        return facts

    def _check_gradient_sum(
        self,
        recipe: Recipe,
        learner: Learner,
        minibatch: Sequence[Sample],
        update_index: int,
        facts: dict[str, Any],
    ) -> dict[str, Any]:
        """Start the check of the gradient sum; not with dropout, which is random."""
        if not (recipe.lora and recipe.lora.dropout > 0):
            self.pending_hook, self.gradient_tokens = check_gradient_sum(
                learner, minibatch, update_index, facts
            )
        return {}

    def _draws(
        self,
        recipe: Recipe,
        sampler: Sampler,
        learner: Learner,
        step_samples: StepSamples,
        key: tuple[object, ...],
        facts: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the audit of sampled tokens, and rewards computed again."""
        if learner.algorithm.source != "rollouts":
            return {}
        rows = [*step_samples.samples, *step_samples.untrained]
        regraded = regrade_facts(step_samples.rollouts, sampler.env.rewards, sampler.workers.grade)
        if recipe.engine.ahead:
            return {"regraded": regraded}  # older weights sampled: the trainer lacks their distribution
        engine = facts.get("publication", {}).get("rows", {}).get("largest", 0.0)
        audit = draw_audit_facts(learner, rows, key, sampler.engine.draws, engine)
        return {"audit": audit, "regraded": regraded}


def _costs(step_samples: StepSamples, minibatch: Sequence[Sample]) -> dict[str, float]:
    """Return the tokens that each kind of audit but ``gradient`` computes; for weights, one audit."""
    rows = [*step_samples.samples, *step_samples.untrained]
    sampled = [len(row) for row in rows if (row.origin == Origin.SAMPLED).any()]
    checked = float(sum(map(len, rows_to_check(minibatch))))
    return {
        "weights": 1.0,
        "audit": sum(sampled) * min(1.0, AUDITED_ATTEMPTS / len(sampled)) if sampled else 0.0,
        "rows": checked,
        "row_gradient": checked,
    }
