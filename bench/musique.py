"""MuSiQue, HotpotQA and 2WikiMultihopQA pooled: what SFT, rejection sampling and GRPO each add.

    python bench/musique.py runs/musique --data PATH [PATH …] [--seeds 0 1 2] [--jobs 2]
    python bench/musique.py runs/musique --report >> docs/results.md

Every arm starts from the same short SFT (same seed, same demonstrations). Then nothing more, as many more
SFT steps as GRPO computes prompts, rejection sampling, or GRPO. Finished runs are kept; a broken one resumes.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from truing.record import RunReader
from truing.train.evaluate import Evaluation, bootstrap, read_evaluation

WARM, STEPS, PROMPTS, BATCH = 12, 20, 8, 8
ARMS = {
    "grpo": ['stages=["sft","grpo"]', f"grpo.steps={STEPS}", f"grpo.prompts_per_step={PROMPTS}"],
    "rft": [
        "eval.base=false",
        'stages=["sft","rft"]',
        f"rft.steps={STEPS}",
        f"rft.prompts_per_step={PROMPTS}",
    ],
    "sft": ["eval.base=false", 'stages=["sft"]', f"sft.steps={WARM + STEPS * PROMPTS // BATCH}"],
}
ROWS = {
    "base": ("grpo", "base"),
    "SFT warm start": ("grpo", "after_sft"),
    "SFT alone, same tokens": ("sft", "after_sft"),
    "SFT + rejection sampling": ("rft", "after_rft"),
    "SFT + GRPO": ("grpo", "after_grpo"),
}


def run_arm(folder: Path, arm: str, seed: int, data: Sequence[str]) -> None:
    """Train one arm with one seed, or go on with it, or leave it if it is finished."""
    out = folder / f"{arm}-s{seed}"
    if out.is_dir() and any(event.kind == "finished" for event in RunReader(out).events()):
        return
    overrides = [f"sft.steps={WARM}", f"sft.batch_size={BATCH}", *ARMS[arm], f"seed={seed}"]
    command = [
        *(sys.executable, "-m", "truing", "train", "recipes/musique.toml", f"env.data={json.dumps(data)}"),
        *overrides,
        *("--out", str(out), *(["--resume"] if out.is_dir() else [])),
    ]
    with (folder / f"{arm}-s{seed}.log").open("a") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)


def evaluations(run: Path) -> dict[str, Evaluation]:
    """What a finished run evaluated, by name."""
    found = [read_evaluation(event.payload) for event in RunReader(run).events() if event.kind == "eval"]
    return {evaluation.name: evaluation for evaluation in found}


def over_seeds(folder: Path, arm: str, name: str) -> list[Mapping[str, float]]:
    """The reward of each task, per finished seed."""
    runs = sorted(path for path in folder.glob(f"{arm}-s*") if path.is_dir())
    found = [evaluations(run) for run in runs]
    return [evaluation[name].reward for evaluation in found if name in evaluation]


def report(folder: Path) -> str:
    """The table: each policy, its mean over seeds, an interval, and its gain over the warm start."""
    lines = ["| policy | seeds | F1 | gain over the warm start | per seed |", "|---|---|---|---|---|"]
    warm = over_seeds(folder, *ROWS["SFT warm start"])
    for row, (arm, name) in ROWS.items():
        seeds = over_seeds(folder, arm, name)
        tasks = sorted(seeds[0])
        mean = [float(np.mean([seed[task] for seed in seeds])) for task in tasks]
        before = [float(np.mean([seed[task] for seed in warm])) for task in tasks]
        gain = bootstrap(np.subtract(mean, before).tolist(), row)
        shown = "" if row == "SFT warm start" else f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
        each = " ".join(f"{np.mean(list(seed.values())):.3f}" for seed in seeds)
        lines.append(f"| {row} | {len(seeds)} | {bootstrap(mean, row)} | {shown} | {each} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, or report what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", nargs="+", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if given.report:
        print(report(given.folder))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        jobs = [
            pool.submit(run_arm, given.folder, arm, seed, given.data) for seed in given.seeds for arm in ARMS
        ]
        for job in jobs:
            job.result()
    print(report(given.folder))


if __name__ == "__main__":
    main()
