"""Cost per token, in forwards of one token: of training, of sampling, and of each audit.

    python -m dev.measure.audit_cost [CASE] [--steps 3]

The first update is left out: it warms caches.
`COST_PER_TOKEN` in instrumentation/audit_schedule.py holds the figures, rounded.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from dev.measure import truing_side
from dev.measure.cases import CASES
from truing.instrumentation import audit_schedule


def main() -> None:
    """Measure a case with every audit at every update."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("case", nargs="?", default="short", choices=CASES)
    parser.add_argument("--steps", type=int, default=3)
    chosen = parser.parse_args()
    seconds = time_audits()
    recipe = truing_side.case_recipe
    truing_side.case_recipe = lambda case, steps: recipe(case, steps) | {"doctor": {"budget": 1.0}}
    steps = truing_side.run_case(CASES[chosen.case], chosen.steps)
    print(json.dumps(passes([step.record for step in steps], seconds), indent=2))


def time_audits() -> dict[str, list[float]]:
    """Return the seconds of each kind of audit, an entry per update, filled during the run."""
    seconds: dict[str, list[float]] = defaultdict(list)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            since = time.perf_counter()
            result = function(*args, **kwargs)
            seconds[name].append(time.perf_counter() - since)
            return result

        return run

    for name, owner, function in (
        ("weights", audit_schedule.AuditSchedule, "_weights"),
        ("audit", audit_schedule.AuditSchedule, "_draws"),
        ("rows", audit_schedule.CrossCheck, "row_facts"),
        ("row_gradient", audit_schedule.CrossCheck, "gradient_facts"),
        ("gradient", audit_schedule.AuditSchedule, "_check_gradient_sum"),
    ):
        setattr(owner, function, timed(name, getattr(owner, function)))
    return seconds


def passes(records: list[Any], seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Return seconds per token of each kind ÷ those of a forward, over all updates but the first."""
    later = records[1:]
    computed = sum(record.metrics["tokens/computed"] for record in later)
    spent = {
        name: sum(record.seconds[name] for record in later) for name in ("forward", "backward", "decode")
    }
    forward = spent["forward"] / computed
    sampled = sum(record.metrics["tokens/sampled"] for record in later)
    found = {"trained": (spent["forward"] + spent["backward"]) / computed, "drawn": spent["decode"] / sampled}
    for name, each in seconds.items():
        tokens = sum(
            record.facts["audit_cost"][name] / audit_schedule.COST_PER_TOKEN[name] for record in later
        )
        found[name] = sum(each[1:]) / tokens
    return {name: round(value / forward, 2) for name, value in found.items()}


if __name__ == "__main__":
    main()
