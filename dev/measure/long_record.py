"""Write the record of a very long run, and read it while it grows: milliseconds per step stay the same.

    python -m dev.measure.long_record [--steps 100000] [--chunks 5] [--out FOLDER] [--no-compact]

A trained step is recorded again and again by the writer, with its rows, each synced as in training. After
each chunk a reader and a run of the board, both open since the start, read what is new, and a new run of the
board reads all. At the end the record is compacted, and every row is read back and verified, if not left out.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

import truing
from truing.analysis.incremental_reader import IncrementalReader
from truing.board.data.open_runs import open_view
from truing.record import RunReader, RunWriter, compact
from truing.types.step_table import StepTable

STAGE = "grpo"
RECIPE = {
    "name": "long",
    "stages": [STAGE],
    "model": {"name": "tiny", "threads": 1, "device": "cpu"},
    "env": {"name": "arithmetic", "kinds": ["max"], "train": 24, "eval": 8},
    "sampling": {"max_new_tokens": 4},
    "eval": {"tasks": 0},
    STAGE: {"steps": 1, "learning_rate": 1e-3, "prompts_per_step": 1, "group_size": 2},
}


def train_step(out: Path) -> StepTable:
    """Train one step in ``out``; return it."""
    truing.train(RECIPE, out=out)
    return RunReader(out).find_table(STAGE, 0)


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Write and read, and print a row for each chunk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--chunks", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a new folder; by default a temporary one")
    parser.add_argument("--compact", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="long-") as folder:
        run = (args.out or Path(folder)) / "run"
        write_and_read(run, args.steps, args.steps // args.chunks)
        if args.compact:
            compact_and_verify(run)


def write_and_read(run: Path, count: int, chunk: int) -> None:
    """Write ``count`` steps in chunks, and print what writing and reading each chunk takes."""
    table = train_step(run)
    follower, view = IncrementalReader(run), open_view("run", run, run.parent)
    print("     steps    write ms/step  follow ms  board ms  read all s  memory MiB")
    with RunWriter(run, resume=True) as writer:
        for first in range(1, count, chunk):
            steps = range(first, min(first + chunk, count))

            def write(steps: range = steps) -> None:
                for step in steps:
                    writer.write_step(replace(table, step=step))

            written = 1000 * seconds(write) / len(steps)
            followed, shown = seconds(follower.refresh), seconds(view.refresh)
            everything = seconds(lambda: open_view("run", run, run.parent).refresh())
            gc.collect()
            memory = psutil.Process().memory_info().rss / 2**20
            print(
                f"{steps[-1] + 1:10,}{written:17.2f}{1000 * followed:11.0f}{1000 * shown:10.0f}"
                f"{everything:12.2f}{memory:12.0f}",
                flush=True,
            )
    if len(follower.columns) != count:
        raise SystemExit(f"the reader has {len(follower.columns)} steps, not {count}")


def compact_and_verify(run: Path) -> None:
    """Compact the record and verify every row, and print what it takes."""
    print(f"compacted in {seconds(lambda: compact(run)):.0f} s")
    reader = RunReader(run)
    reader.check_complete()
    print(f"verified every row in {seconds(lambda: [reader.table(step) for step in reader.steps()]):.0f} s")


if __name__ == "__main__":
    main()
