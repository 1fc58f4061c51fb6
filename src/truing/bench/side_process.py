"""One side of a comparison in a process of its own, so that its peak memory is its own.

python -m truing.bench.side_process truing|trl CASE STEPS, where CASE is a case as JSON
"""

import json
import resource
import sys
import time
from importlib import import_module
from threading import Thread

import torch

from truing.bench.cases import Case

SIDES = {"truing": "truing.bench.truing_side", "trl": "truing.bench.trl_side"}


class PeakGpuMemory(Thread):
    """The most memory in use on the GPU, looked at all the while: a side may reset what torch counts."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self.start()

    def run(self) -> None:
        """Look on until the process ends."""
        while True:
            free, total = torch.cuda.mem_get_info()
            self.bytes = max(self.bytes, total - free)
            time.sleep(0.02)


def main(side: str, case: str, steps: str) -> None:
    """Print what was measured as the last line: seconds, and gigabytes; on CUDA those of the GPU."""
    given = Case(**json.loads(case))
    most = PeakGpuMemory() if given.gpu else None
    measured = import_module(SIDES[side]).measure(given, int(steps))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if most is None else most.bytes
    print(json.dumps({**measured, "peak_memory": peak / 1e9}))


if __name__ == "__main__":
    main(*sys.argv[1:])
