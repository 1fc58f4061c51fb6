"""What the doctor's look at an update comes to as numbers; names are those of metrics/audit_definitions.py."""

from collections.abc import Mapping, Sequence
from typing import Any

from truing.doctor.rules.smp007 import wealth_of

NULL_METRICS = {"mismatch/null_max_abs": "logprob", "mismatch/null_k3": "k3"}
"""How far the trainer is from itself, by the metric it is read beside, and its name in the fact."""


def audit_metrics(
    facts: Mapping[str, Any], audits: Sequence[Mapping[str, Any]], *, compared: bool
) -> dict[str, float]:
    """Numbers of the facts ``found`` of an update.

    Args:
        found: facts of the update; one that nobody looked into has none of those that are read here.
        audits: facts ``audit`` of the updates of its stage before it.
        compared: whether the update compares sampler and trainer, which the null is to be read beside.
    """
    metrics: dict[str, float] = {}
    if compared and "null" in facts:
        metrics |= {name: facts["null"][key] for name, key in NULL_METRICS.items()}
    if "audit" in facts:
        metrics["audit/log10_odds"] = wealth_of([*audits, facts["audit"]]).together
        metrics["audit/tokens"] = float(facts["audit"]["tokens"])
    return metrics
