"""Does prefix sharing change learning? Train each seed twice: with the token tree, and with padded rows.

    python -m dev.measure.curves FOLDER RECIPE [key=value …] [--seeds 0 1 2 3] [--jobs 2]

tree    the default: shared prefixes are computed once
plain   padded rows without sharing

The two differ by rounding only, until rounding changes a sample; then by chance. A difference of less than
two standard errors is not significant. Finished runs are kept, and must be of the same recipe.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

import numpy as np

from truing.record import RunReader

PATHS = ("tree", "plain")
PLAIN = """
import sys
import truing.models.forward.hidden_states, truing.engines.local.engine
reason = lambda causal, longest: "for comparison"
truing.models.forward.hidden_states.why_no_tree = truing.engines.local.engine.why_no_tree = reason
from truing.cli import main
main()
"""
"""The command without token trees."""


def run(folder: Path, arguments: Sequence[str], path: str, seed: int) -> None:
    """Train one seed on one path, if it is not trained."""
    out = folder / f"{path}-s{seed}"
    if out.is_dir() and any(event.kind == "finished" for event in RunReader(out).events()):
        return
    program = ["-m", "truing"] if path == "tree" else ["-c", PLAIN]
    command = [sys.executable, *program, "train", *arguments, f"seed={seed}", "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def rewards(out: Path) -> list[float]:
    """Return the mean reward of each step of GRPO."""
    return [row.metrics["reward/mean"] for row in RunReader(out).steps() if row.stage == "grpo"]


def report(folder: Path, seeds: Sequence[int]) -> str:
    """Return a line for each seed, and the mean difference between the paths with its standard error."""
    lines, differences = ["seed  same steps  reward, last half: tree  plain"], []
    for seed in seeds:
        tree, plain = (np.array(rewards(folder / f"{path}-s{seed}")) for path in PATHS)
        same = sum(1 for _ in takewhile(bool, np.isclose(tree, plain, atol=1e-9)))
        late = slice(len(tree) // 2, None)
        lines.append(
            f"{seed:4}  {same:4} of {len(tree):3}  {tree[late].mean():23.3f}  {plain[late].mean():5.3f}"
        )
        differences.append(tree[late].mean() - plain[late].mean())
    error = np.std(differences, ddof=1) / len(differences) ** 0.5
    return "\n".join([*lines, f"tree − plain: {np.mean(differences):+.3f}, standard error {error:.3f}"])


def main() -> None:
    """Train the missing runs, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("arguments", nargs="+", metavar="RECIPE [key=value …]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs")
    given = parser.parse_args()
    if len(given.seeds) < 2:
        parser.error("a standard error needs two seeds")
    given.folder.mkdir(parents=True, exist_ok=True)
    note = given.folder / "arguments.json"
    if note.is_file() and json.loads(note.read_text()) != given.arguments:
        parser.error(f"{given.folder} has runs of {note.read_text()}; take another folder")
    note.write_text(json.dumps(given.arguments))
    with ThreadPoolExecutor(given.jobs) as pool:
        runs = [(path, seed) for seed in given.seeds for path in PATHS]
        list(pool.map(lambda each: run(given.folder, given.arguments, *each), runs))
    print(report(given.folder, given.seeds))


if __name__ == "__main__":
    main()
