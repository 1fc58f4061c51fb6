"""One side of a comparison in its own process, so that its peak memory is measured alone.

python -m truing.bench.side_process truing|trl CASE STEPS, where CASE is a case as JSON
"""

import json
import resource
import sys
from importlib import import_module
from threading import Event, Thread

import torch

from truing.bench.cases import Case

SIDES = {"truing": "truing.bench.truing_side", "trl": "truing.bench.trl_side"}


class PeakGpuMemory(Thread):
    """Peak memory in use on the GPU, polled by a thread: a side may reset torch's own counters."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self._ended = Event()
        self.start()

    def run(self) -> None:
        """Poll until ``stop``."""
        while True:
            free, total = torch.cuda.mem_get_info()
            self.bytes = max(self.bytes, total - free)
            if self._ended.wait(0.02):
                return

    def stop(self) -> int:
        """End the thread; return the peak."""
        self._ended.set()
        self.join()
        return self.bytes


def main(side: str, case: str, steps: str) -> None:
    """Print the measurements as the last line: seconds, and gigabytes (on CUDA, of the GPU)."""
    parsed_case = Case(**json.loads(case))
    gpu_peak = PeakGpuMemory() if parsed_case.gpu else None
    result = import_module(SIDES[side]).measure(parsed_case, int(steps))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if gpu_peak is None else gpu_peak.stop()
    print(json.dumps({**result, "peak_memory": peak / 1e9}))


if __name__ == "__main__":
    main(*sys.argv[1:])
