"""The audit schedule: which steps the doctor audits beyond their record, and with which audits.

Costs are counted in tokens, never in seconds, so a resumed run audits the same steps.
"""

from collections.abc import Iterable, Mapping, Sequence

from truing.measurements.audit_budget import AuditBudget
from truing.measurements.checked_rows import checked_rows
from truing.measurements.draw_audit import AUDITED_ROLLOUTS
from truing.measurements.measurement import AuditKind, MeasuredStep
from truing.types.facts import Facts
from truing.types.sample import Sample
from truing.types.token import Origin

BUDGET_SHARES: Mapping[AuditKind, float] = {
    "weights": 0.2,
    "audit": 0.4,
    "rows": 0.1,
    "row_gradient": 0.1,
    "gradient": 0.2,
}
"""Shares of the budget: digests and one synced layer; the audit of sampled tokens; some rows by a plain
forward, and their gradient by a plain backward; every row's gradient, whose sum the optimizer must get."""

GROUPS: Sequence[Sequence[AuditKind]] = (("weights", "gradient"), ("rows",), ("audit",), ("row_gradient",))
"""Audits of one step: each group costs about as much as a step, so that no step takes much more than twice
its time. The sum of gradients comes first: it is more specific than what every step checks of it (OPT014).
A forward of rows joins it beside a reference, which is the policy in that step alone (REF002)."""

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
"""Rule families whose findings request every audit once more, at any cost, in the next steps."""


class AuditSchedule:
    """Audits the first steps of a stage, a group of audits each, and later ones as the budget allows."""

    def __init__(self, budget: float, past_facts: Iterable[Facts] = (), *, requested_in: int = -1) -> None:
        """Start a schedule, or continue it after recorded steps of the stage.

        Args:
            budget: share of audits in what a stage computes, in [0, 1]; at 1 every step has every audit.
            past_facts: facts of the stage's steps so far.
            requested_in: the last step whose findings requested audits; -1 for none.
        """
        self.budgets: dict[AuditKind, AuditBudget] = {
            name: AuditBudget(1 if budget == 1 else share * budget) for name, share in BUDGET_SHARES.items()
        }
        self.all_at_once = budget == 1
        self.requested_in = requested_in
        self.steps = 0  # of the stage so far
        self.last_step: dict[AuditKind, int] = dict.fromkeys(BUDGET_SHARES, -1)  # with each kind of audit
        self.cost_of_steps = 0.0  # of all steps so far, in forwards of a token
        for facts in past_facts:
            self.count(facts.get("audit_cost", {}))

    def count(self, costs: Mapping[str, float]) -> None:
        """Add the cost of a step and of its audits."""
        self.cost_of_steps += costs.get("step", 0.0)
        for name, budget in self.budgets.items():
            if name in costs:
                budget.spend(costs[name])
                self.last_step[name] = self.steps
        self.steps += 1

    def request(self) -> None:
        """Request every audit once more, after the findings of the last step."""
        self.requested_in = self.steps - 1

    def due(self, steps: int, *, has_reference: bool) -> list[AuditKind]:
        """Return the audits of the next of a stage's ``steps``: those of the group that has waited longest.

        The last step has all that the stage has not had yet.
        """
        never: list[AuditKind] = [name for name, step in self.last_step.items() if step < 0]
        if never and self.steps == steps - 1:
            return never
        due: list[AuditKind] = [
            name
            for name, budget in self.budgets.items()
            if budget.due(self.cost_of_steps) or self.last_step[name] <= self.requested_in
        ]
        if self.all_at_once:
            return due
        groups: list[list[AuditKind]] = [[name for name in names if name in due] for names in GROUPS]
        waiting = [group for group in groups if group]
        longest = min(waiting, key=lambda group: min(self.last_step[name] for name in group), default=[])
        is_first = never == [*BUDGET_SHARES]  # the step in which a reference is the policy
        return [*longest, "rows"] if has_reference and is_first else longest


def step_cost(step: MeasuredStep) -> float:
    """Return the cost of a step without its audits, once it has trained, in forwards of a token."""
    sampled = sum(int((sample.origin == Origin.SAMPLED).sum()) for sample in step.all_samples)
    computed = sum(each.tokens_computed for each in step.optimizer_steps)
    return COST_PER_TOKEN["trained"] * computed + COST_PER_TOKEN["drawn"] * sampled


def audited_tokens(step: MeasuredStep, minibatch: Sequence[Sample]) -> dict[AuditKind, float]:
    """Return the tokens that each kind of audit of the first minibatch computes; for weights, one audit."""
    sampled = [len(sample) for sample in step.all_samples if (sample.origin == Origin.SAMPLED).any()]
    checked = sum(map(len, checked_rows(step, minibatch)))
    return {
        "weights": 1.0,
        "audit": sum(sampled) * min(1.0, AUDITED_ROLLOUTS / len(sampled)) if sampled else 0.0,
        "rows": float(checked),
        "row_gradient": float(checked),
        "gradient": float(sum(map(len, minibatch))),
    }
