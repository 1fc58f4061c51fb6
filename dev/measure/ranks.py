"""Seconds of a step with two ranks of one thread, and with one process of two threads.

    python -m dev.measure.ranks RECIPE [KEY=VALUE …] [--shard] [--repeats 3]

Both train in turns; with ``--shard`` the weights are sharded though each rank could hold all. A step's
phases are summed but for what the doctor and the record need; the first step of a stage, which measures
memory and warms up, is left out. The ratio is the time of one process ÷ that of two ranks: above 1 two ranks
are faster.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from truing.record import RunReader

ONE_PROCESS = ("--ranks", "1", "model.threads=2")
TWO_RANKS = ("--ranks", "2", "model.threads=1")


def seconds_per_step(recipe: str, changes: list[str], way: tuple[str, ...]) -> float:
    """Return the median over the steps of a run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "truing", "train", recipe, *way, *changes, "--out", str(run)]
        subprocess.run(command, check=True, capture_output=True)
        steps = [
            sum(each.seconds.values()) - each.seconds.get("doctor", 0.0) - each.seconds.get("record", 0.0)
            for each in RunReader(run).steps()
            if each.step > 0
        ]
    return statistics.median(steps)


def main() -> None:
    """Print the medians of each repeat and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("changes", nargs="*")
    parser.add_argument("--shard", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    two_ranks = (*TWO_RANKS, *(["trainer.replicate=1"] if args.shard else []))
    ratios = []
    for _ in range(args.repeats):
        one, two = (seconds_per_step(args.recipe, args.changes, way) for way in (ONE_PROCESS, two_ranks))
        ratios.append(one / two)
        print(f"{one:.3f} s and {two:.3f} s a step: {ratios[-1]:.3f}", flush=True)
    print(f"median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
