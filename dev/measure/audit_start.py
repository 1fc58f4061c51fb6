"""CPU seconds of a stage's first update and of each of its audits, for one or more trees, case by case.

    python -m dev.measure.audit_start [--cases short agent long] [TREE …]

A tree is a checkout, such as one of an earlier commit; by default this one. Every audit runs in the first
update here; instrumentation/audit_schedule.py spreads them over updates. One thread; each case runs in a
process of its own, tree after tree.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from dev import ROOT

CASES = ("short", "agent", "long")

AUDITS = (
    ("AuditSchedule", "_weights"),
    ("AuditSchedule", "_draws"),
    ("AuditSchedule", "_check_gradient_sum"),
    ("CrossCheck", "row_facts"),
    ("CrossCheck", "gradient_facts"),  # of some rows; part of row_facts in earlier trees
)


def measure(case: str) -> dict[str, float]:
    """Train one update of a case; return the CPU seconds of each audit, and of all else in the update."""
    import torch

    from dev.measure import truing_side
    from dev.measure.cases import CASES as ALL
    from truing.instrumentation import audit_schedule
    from truing.trainer.stage_trainer import StageTrainer

    torch.set_num_threads(1)
    seconds: dict[str, float] = {}

    def timed(owner: Any, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def run(*args: Any, **kwargs: Any) -> Any:
            since = time.process_time()
            result = function(*args, **kwargs)
            seconds[name] = seconds.get(name, 0.0) + time.process_time() - since
            return result

        setattr(owner, name, run)

    for owner, name in AUDITS:
        if hasattr(getattr(audit_schedule, owner), name):
            timed(getattr(audit_schedule, owner), name)
    timed(StageTrainer, "step")
    recipe = truing_side.case_recipe
    truing_side.case_recipe = lambda case, steps: recipe(case, steps) | {"doctor": {"budget": 1.0}}
    truing_side.run_case(ALL[case], 1)
    audits = sum(seconds[name] for _, name in AUDITS if name in seconds)
    return {"update": seconds.pop("step") - audits, **seconds}


def main() -> None:
    """Measure each case in each tree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="*", metavar="TREE", default=[str(ROOT)])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--child", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps({name: round(value, 2) for name, value in measure(args.child).items()}))
        return
    for case in args.cases:
        for tree in args.trees:
            env = {**os.environ, "PYTHONPATH": f"{tree}/src:{tree}", "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, "--child", case]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            print(case, tree, done.stdout.strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
