"""Metrics of audits; metrics/audit_definitions.py defines their names."""

from collections.abc import Mapping, Sequence
from typing import Any

from truing.doctor.rules.smp007 import wealth_of

NULL_METRICS = {"mismatch/null_max_abs": "logprob", "mismatch/null_k3": "k3"}
"""Metrics of the trainer's difference from itself, and their keys in the fact ``null``."""


def audit_metrics(
    facts: Mapping[str, Any], audits: Sequence[Mapping[str, Any]], *, compared: bool
) -> dict[str, float]:
    """Return the audit metrics of a step.

    Args:
        facts: of the step; without an audit it has none of those read here.
        audits: facts ``audit`` of the stage's earlier steps.
        compared: whether the step has mismatch metrics, which the null metrics are compared with.
    """
    metrics: dict[str, float] = {}
    if compared and "null" in facts:
        metrics |= {name: facts["null"][key] for name, key in NULL_METRICS.items()}
    if "routes" in facts:
        metrics["mismatch/routes_rounding"] = facts["routes"]["rounding"]
    if "swallowed" in facts.get("adamw", {}):
        metrics["optimizer/swallowed_share"] = facts["adamw"]["swallowed"]
    if "audit" in facts:
        metrics["audit/log10_odds"] = wealth_of([*audits, facts["audit"]]).together
        metrics["audit/tokens"] = float(facts["audit"]["tokens"])
    return metrics
