"""Cost per token, in forwards of one token: of training, of sampling, and of each audit.

    python -m dev.measure.audit_cost [CASE] [--steps 3]

The first step is left out: it warms caches.
`COST_PER_TOKEN` in measurements/audit_schedule.py holds the figures, rounded.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from dev.measure import truing_side
from dev.measure.cases import CASES
from truing.measurements.audit_schedule import COST_PER_TOKEN
from truing.measurements.measurement import AuditKind
from truing.measurements.step_measurements import MEASUREMENTS


def main() -> None:
    """Measure a case with every audit at every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("case", nargs="?", default="short", choices=CASES)
    parser.add_argument("--steps", type=int, default=3)
    chosen = parser.parse_args()
    seconds = time_audits()
    recipe = truing_side.case_recipe
    truing_side.case_recipe = lambda case, steps: recipe(case, steps) | {"doctor": {"budget": 1.0}}
    steps = truing_side.run_case(CASES[chosen.case], chosen.steps)
    print(json.dumps(passes([step.record for step in steps], seconds), indent=2))


def time_audits() -> dict[AuditKind, list[float]]:
    """Return the seconds of each kind of audit, an entry per step and measurement; the run fills it."""
    seconds: dict[AuditKind, list[float]] = defaultdict(list)

    def timed(kind: AuditKind, function: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            since = time.perf_counter()
            function(*args)
            seconds[kind].append(time.perf_counter() - since)

        return run

    for each in MEASUREMENTS:
        if each.audit:
            each.before_optimizer_steps = timed(each.audit, each.before_optimizer_steps)
    return seconds


def passes(records: list[Any], seconds: Mapping[AuditKind, list[float]]) -> dict[str, float]:
    """Return seconds per token of each kind ÷ those of a forward, over all steps but the first."""
    later = records[1:]
    computed = sum(record.metrics["tokens/computed"] for record in later)
    spent = {
        name: sum(record.seconds[name] for record in later) for name in ("forward", "backward", "decode")
    }
    forward = spent["forward"] / computed
    sampled = sum(record.metrics["tokens/sampled"] for record in later)
    found = {"trained": (spent["forward"] + spent["backward"]) / computed, "drawn": spent["decode"] / sampled}
    for name, each in seconds.items():
        tokens = sum(record.facts["audit_cost"][name] / COST_PER_TOKEN[name] for record in later)
        found[name] = sum(each[len(each) // len(records) :]) / tokens
    return {name: round(value / forward, 2) for name, value in found.items()}


if __name__ == "__main__":
    main()
