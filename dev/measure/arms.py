"""Gains of SFT, rejection sampling and GRPO after one warm start, for a recipe of SFT, then GRPO.

    python -m dev.measure.arms FOLDER RECIPE [key=value …] [--arms grpo sft rft] [--seeds 0 1 2] [--jobs 2]
    python -m dev.measure.arms FOLDER RECIPE --report

Every arm starts from the same SFT (same seed, same demonstrations), for the recipe's steps. Then:

    grpo         the recipe's GRPO
    rft          rejection sampling, by the recipe's [rft]
    sft          SFT continues, over as many prompts as GRPO has
    sft-answers  SFT continues, over as many answers as GRPO samples

Finished runs are kept; an interrupted one resumes.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from truing.analysis.evaluation import Evaluation, read_evaluation
from truing.config import Recipe, load_recipe
from truing.record import RunReader

ARMS = ("grpo", "rft", "sft", "sft-answers")
ROWS = {
    "base": ("grpo", "base"),
    "SFT": ("grpo", "after_sft"),
    "SFT alone, same prompts": ("sft", "after_sft"),
    "SFT alone, as many answers": ("sft-answers", "after_sft"),
    "SFT + rejection sampling": ("rft", "after_rft"),
    "SFT + GRPO": ("grpo", "after_grpo"),
}
"""Rows of the table: an arm, and one of its evaluations."""


def overrides(arm: str, recipe: Recipe) -> list[str]:
    """Return the recipe keys that an arm changes."""
    assert recipe.sft, "the recipe needs [sft]"
    assert recipe.grpo, "the recipe needs [grpo]"
    if arm == "grpo":
        return ['stages=["sft","grpo"]']
    if arm == "rft":
        return ["eval.base=false", 'stages=["sft","rft"]']
    prompts = recipe.grpo.steps * recipe.grpo.prompts_per_step
    read = prompts * (recipe.grpo.group_size if arm == "sft-answers" else 1)
    return [
        "eval.base=false",
        'stages=["sft"]',
        f"sft.steps={recipe.sft.steps + read // recipe.sft.batch_size}",
    ]


def run_arm(folder: Path, path: str, keys: Sequence[str], arm: str, seed: int) -> None:
    """Train one arm with one seed; resume an interrupted run, skip a finished one."""
    out = folder / f"{arm}-s{seed}"
    if out.is_dir() and any(event.kind == "finished" for event in RunReader(out).events()):
        return
    command = [
        *(sys.executable, "-m", "truing", "train", path, *keys),
        *(*overrides(arm, load_recipe(path, keys)), f"seed={seed}"),
        *("--out", str(out), *(["--resume"] if out.is_dir() else [])),
    ]
    with (folder / f"{arm}-s{seed}.log").open("a") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)


def evaluations(run: Path) -> dict[str, Evaluation]:
    """Return the evaluations of a finished run, by name."""
    found = [read_evaluation(event.payload) for event in RunReader(run).events() if event.kind == "eval"]
    return {evaluation.name: evaluation for evaluation in found}


def over_seeds(folder: Path, arm: str, name: str) -> list[Evaluation]:
    """Return one evaluation of each finished seed."""
    runs = sorted(path for path in folder.glob(f"{arm}-s*") if path.is_dir())
    found = [evaluations(run) for run in runs]
    return [evaluation[name] for evaluation in found if name in evaluation]


def averaged(seeds: Sequence[Evaluation]) -> Evaluation:
    """Return the mean reward of each task over seeds; the unit stays the task."""
    reward = {task: float(np.mean([seed.reward[task] for seed in seeds])) for task in seeds[0].reward}
    known = [seed.bounds for seed in seeds if seed.bounds is not None]
    lows, highs = [low for low, _ in known], [high for _, high in known]
    bounds = (min(lows), max(highs)) if len(known) == len(seeds) else None
    return Evaluation(seeds[0].name, reward, {}, {}, {}, bounds)


def report(folder: Path) -> str:
    """Return the table: each policy, its mean over seeds, an interval, and its gain over the warm start."""
    lines = ["| policy | seeds | reward | gain over SFT | per seed |", "|---|---|---|---|---|"]
    warm = over_seeds(folder, *ROWS["SFT"])
    for row, (arm, name) in ROWS.items():
        seeds = over_seeds(folder, arm, name)
        if not seeds:
            continue
        mean, before = averaged(seeds), averaged(warm)
        shown = "" if row == "SFT" else mean.gain_over(before).signed
        each = " ".join(f"{seed.estimate().mean:.3f}" for seed in seeds)
        lines.append(f"| {row} | {len(seeds)} | {mean.estimate()} | {shown} | {each} |")
    return "\n".join(lines)


def main() -> None:
    """Run the missing arms, or report the finished ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("recipe")
    parser.add_argument("keys", nargs="*", metavar="key=value")
    parser.add_argument("--arms", nargs="+", default=["grpo", "sft"], choices=ARMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if not given.report:
        given.folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(given.jobs) as pool:
            jobs = [
                pool.submit(run_arm, given.folder, given.recipe, given.keys, arm, seed)
                for seed in given.seeds
                for arm in given.arms
            ]
            for job in jobs:
                job.result()
    print(report(given.folder))


if __name__ == "__main__":
    main()
