"""Gains of SFT, rejection sampling and GRPO after one warm start, for a recipe of SFT, then GRPO.

    python -m dev.measure.arms FOLDER RECIPE [key=value …] [--arms grpo sft rft] [--seeds 0 1 2] [--jobs 2]
    python -m dev.measure.arms FOLDER RECIPE --report

Every arm starts from the same SFT (same seed, same demonstrations), for the recipe's steps. Then:

    grpo         the recipe's GRPO
    rft          rejection sampling, by the recipe's [rft]
    sft          SFT continues, over as many prompts as GRPO has
    sft-answers  SFT continues, over as many answers as GRPO samples

Finished runs are kept; an interrupted one resumes. The table names every run that was begun.
docs/registered-runs.md has the settings of the tables in docs/results.md, and the seeds.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
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
    if out.is_dir() and finished(out):
        return
    command = [
        *(sys.executable, "-m", "truing", "train", path, *keys),
        *(*overrides(arm, load_recipe(path, keys)), f"seed={seed}"),
        *("--out", str(out), *(["--resume"] if out.is_dir() else [])),
    ]
    with (folder / f"{arm}-s{seed}.log").open("a") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)


def finished(run: Path) -> bool:
    """Whether a run reached its end."""
    return any(event.kind == "finished" for event in RunReader(run).events())


def evaluations(run: Path) -> dict[str, Evaluation]:
    """Return the evaluations of a run, by name."""
    found = [read_evaluation(event.payload) for event in RunReader(run).events() if event.kind == "eval"]
    return {evaluation.name: evaluation for evaluation in found}


def runs_of(folder: Path, arm: str) -> dict[int, Path]:
    """Return the runs of an arm that were begun, by seed."""
    runs = {int(path.name.rpartition("-s")[2]): path for path in folder.glob(f"{arm}-s*") if path.is_dir()}
    return dict(sorted(runs.items()))


def over_seeds(folder: Path, arm: str, name: str) -> dict[int, Evaluation]:
    """Return one evaluation of each seed whose run has it."""
    found = {seed: evaluations(run) for seed, run in runs_of(folder, arm).items()}
    return {seed: by_name[name] for seed, by_name in found.items() if name in by_name}


def averaged(seeds: Sequence[Evaluation]) -> Evaluation:
    """Return the mean reward of each task over seeds; the unit stays the task."""
    reward = {task: float(np.mean([seed.reward[task] for seed in seeds])) for task in seeds[0].reward}
    known = [seed.bounds for seed in seeds if seed.bounds is not None]
    lows, highs = [low for low, _ in known], [high for _, high in known]
    bounds = (min(lows), max(highs)) if len(known) == len(seeds) else None
    return Evaluation(seeds[0].name, reward, {}, {}, {}, bounds)


def gains(after: Mapping[int, Evaluation], before: Mapping[int, Evaluation]) -> list[str]:
    """Return the gain over the same seeds' warm starts: of the mean over seeds, then of each seed."""
    shared = [seed for seed in after if seed in before]
    if not shared:
        return []
    mean = averaged([after[seed] for seed in shared]).gain_over(averaged([before[seed] for seed in shared]))
    return [mean.signed, *(f"{seed}: {after[seed].gain_over(before[seed]).signed}" for seed in shared)]


def report(folder: Path) -> str:
    """Return the table: each policy, its mean over seeds, and its paired gain over the warm start.

    The warm start of a seed is the one of its GRPO. Runs that did not finish follow, a line each.
    """
    lines = [
        "| policy | seeds | reward | each seed | gain over SFT | gain of each seed |",
        "|---|---|---|---|---|---|",
    ]
    warm = over_seeds(folder, *ROWS["SFT"])
    for row, (arm, name) in ROWS.items():
        seeds = over_seeds(folder, arm, name)
        if not seeds:
            continue
        each = " ".join(f"{evaluation.estimate().mean:.3f}" for evaluation in seeds.values())
        gain, *by_seed = ([] if row == "SFT" else gains(seeds, warm)) or [""]
        mean = averaged(list(seeds.values())).estimate()
        lines.append(f"| {row} | {len(seeds)} | {mean} | {each} | {gain} | {'; '.join(by_seed)} |")
    begun = [run for arm in ARMS for run in runs_of(folder, arm).values()]
    return "\n".join([*lines, *(f"\n{run.name} did not finish." for run in begun if not finished(run))])


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
                for arm in given.arms
                for seed in given.seeds
            ]
            for job in jobs:
                job.result()
    print(report(given.folder))


if __name__ == "__main__":
    main()
