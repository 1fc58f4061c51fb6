"""One side of a comparison in a process of its own, so that its peak memory is its own.

python -m truing.bench.side truing|trl CASE STEPS, where CASE is a case as JSON
"""

import json
import resource
import sys
from importlib import import_module

import torch

from truing.bench.cases import Case

SIDES = {"truing": "truing.bench.ours", "trl": "truing.bench.trl"}


def main(side: str, case: str, steps: str) -> None:
    """Print what was measured as the last line: seconds, and gigabytes; on CUDA those that torch reserved."""
    given = Case(**json.loads(case))
    measured = import_module(SIDES[side]).measure(given, int(steps))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = torch.cuda.memory_reserved() if given.gpu else resident
    print(json.dumps({**measured, "peak_memory": peak / 1e9}))


if __name__ == "__main__":
    main(*sys.argv[1:])
