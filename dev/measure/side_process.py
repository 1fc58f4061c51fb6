"""One side of a comparison in its own process, so that its peak memory is measured alone.

python -m dev.measure.side_process truing|trl CASE STEPS, where CASE is a case as JSON
"""

import json
import resource
import sys
from importlib import import_module
from threading import Event, Thread

import torch

from dev.measure.cases import Case

SIDES = {"truing": "dev.measure.truing_side", "trl": "dev.measure.trl_side"}


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


def measure_side(side: str, case: Case, steps: int) -> dict[str, float]:
    """Return the seconds of a side in this process, its threads, and peak memory, GB (on CUDA, the GPU's)."""
    gpu_peak = PeakGpuMemory() if case.gpu else None
    result = import_module(SIDES[side]).measure(case, steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if gpu_peak is None else gpu_peak.stop()
    return {**result, "peak_memory": peak / 1e9, "threads": torch.get_num_threads()}


def main(side: str, case: str, steps: str) -> None:
    """Print the measurements as the last line."""
    print(json.dumps(measure_side(side, Case(**json.loads(case)), int(steps))))


if __name__ == "__main__":
    main(*sys.argv[1:])
