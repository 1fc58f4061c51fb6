"""Simulated labs: how often a verdict is wrong, and how often it detects an effect.

    python -m dev.measure.labs FOLDER [--labs 400] [--hypotheses 6] [--seeds 24] [--within 1] [--effect 0]

The hypotheses of a lab share a baseline; each runs seed by seed until the code that judges real runs says
that it is settled. Outcomes are simulated: a baseline per seed, and the arm's gain over it, shifted by the
effect. No pair differs by more than --within; with 0 the bound is unknown, and bets are on signs. Kinds
alternate, each with a mean gain of the effect. Without an effect, or with a loss, the lab's error bounds the
share of labs that validate anything; with one, the share of validated hypotheses is the power of the plan.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats

from truing.lab.run.design import BASELINE, arms_of
from truing.lab.run.runner import declare_experiment
from truing.lab.stats.power import power
from truing.lab.store.lab import Lab, open_lab
from truing.lab.store.ledger import Declaration, Ledger, Run
from truing.lab.verdicts.verdict import judge, judge_pairs
from truing.utils.rng import generator

RECIPE = """
name = "drawn"
stages = ["grpo"]
model = { name = "tiny" }
env = { name = "arithmetic", kinds = ["max"], train = 24, eval = 8 }
grpo = { steps = 2, learning_rate = 1e-3 }
eval = { tasks = 4 }
"""

HEADER = """# Drawn

```toml
claim = "the arm helps"
why = "it is drawn"
priority = "low"
metric = "{metric}"
smallest_effect = 0.1
seeds = {seeds}
{within}
confirm = [{{ metric = "{metric}", arm = "arm", above = 0.0 }}]
refute = [{{ metric = "{metric}", arm = "arm", below = 0.1 }}]

[arms]
arm = ["grpo.learning_rate={rate}"]
```
"""

METRICS = {True: "eval/reward", False: "grad/norm"}
"""By whether the size of differences is bounded: a norm has no bound."""

KINDS: Mapping[str, Callable[[np.random.Generator], float]] = {
    "normal": lambda rng: 0.2 * rng.normal(),
    "outcomes": lambda rng: float(rng.choice([-1, 0, 1], p=[0.1, 0.8, 0.1])),
    "rare loss": lambda rng: -0.9 if rng.random() < 0.1 else 0.1,
    "rare gain": lambda rng: 0.9 if rng.random() < 0.1 else -0.1,
    "skewed": lambda rng: rng.beta(0.2, 0.6) - 0.25,
    "no noise": lambda _: 0.0,
}
"""The gain of an arm over the baseline, of mean 0, between −1 and 1."""

SYMMETRIC = ("normal", "outcomes", "no noise")
"""Kinds for which bets on signs have a guarantee."""


def make_lab(folder: Path, hypotheses: int, seeds: int, within: float) -> Lab:
    """Create a lab on disk, with declared experiments."""
    (folder / "hypotheses").mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "lab.toml").write_text(f'name = "drawn"\nfamily = {hypotheses}\n')
    for i in range(1, hypotheses + 1):
        metric = METRICS[within > 0]
        bound = f'within = {{ "{metric}" = {within} }}' if within else ""
        text = HEADER.format(seeds=seeds, rate=(i + 1) * 1e-3, metric=metric, within=bound)
        (folder / "hypotheses" / f"h{i:02d}-drawn.md").write_text(text)
    lab, ledger = open_lab(folder), Ledger(folder / "experimental-results" / "ledger")
    for each in lab.hypotheses.values():
        lab = declare_experiment(lab, each, ledger, underpowered=True)
    ledger.close()
    return lab


def settle(lab: Lab, number: int, effect: float) -> tuple[str, list[str], int]:
    """Return the kind of a lab, the verdict on each hypothesis, and the number of pairs."""
    kind = list(KINDS)[number % len(KINDS)]
    pairs = 0
    for name, each in lab.hypotheses.items():
        declaration = lab.history.entries_of(Declaration, name)[0]
        labels = {label: arm.digest for label, arm in arms_of(lab, each, declaration).items()}
        metric = each.header.metric
        bound = each.header.within.get(metric, math.inf)
        for seed in range(each.header.seeds):
            base = generator("labs", number, seed).normal()
            gain = float(
                np.clip(KINDS[kind](generator("labs", kind, number, name, seed)) + effect, -bound, bound)
            )
            for label, arm in labels.items():
                value = base + gain * (label != BASELINE)
                lab = lab.with_entry(drawn(name, label, seed, arm, {metric: value}))
            pairs += 1
            if judge_pairs(lab, each).verdict != "TESTING":
                break
    return kind, [judge(lab, each).verdict for each in lab.hypotheses.values()], pairs


def drawn(hypothesis: str, label: str, seed: int, arm: str, metrics: Mapping[str, float]) -> Run:
    """Return a run with simulated metrics."""
    mean = next(iter(metrics.values()))
    tasks = {"a": mean - 0.5, "b": mean + 0.5}  # equal rewards could not distinguish the arms
    key = f"{arm[:10]}-{seed}"
    return Run(key, arm, "", "", hypothesis, label, seed, "finished", metrics=metrics, tasks=tasks)


def main() -> None:
    """Simulate labs, judge them, and print how often that is right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="new; the lab that the simulated ones share")
    for name, value in (("--labs", 400), ("--hypotheses", 6), ("--seeds", 24), ("--jobs", 2)):
        parser.add_argument(name, type=int, default=value)
    parser.add_argument("--effect", type=float, default=0.0, help="mean gain of every arm")
    parser.add_argument("--within", type=float, default=1.0, help="bound on differences; 0: unknown")
    given = parser.parse_args()
    lab = make_lab(given.folder, given.hypotheses, given.seeds, given.within)
    with ProcessPoolExecutor(given.jobs) as pool:
        found = list(pool.map(partial(settle, lab, effect=given.effect), range(given.labs), chunksize=4))
    guaranteed = tuple(KINDS) if given.within else SYMMETRIC
    report("all with a guarantee", [each for each in found if each[0] in guaranteed])
    for kind in KINDS:
        report(kind, [each for each in found if each[0] == kind])
    error = next(iter(lab.history.entries_of(Declaration))).error
    stated = power(given.effect, 0.2, given.seeds, error, within=given.within or None)
    print(f"stated power of a hypothesis at this effect, by normal pairs of deviation 0.2: {stated:.3f}")


def report(kind: str, found: list[tuple[str, list[str], int]]) -> None:
    """Print a line for a kind of outcomes."""
    any_validated = sum("VALIDATED" in verdicts for _, verdicts, _ in found)
    every = [verdict for _, verdicts, _ in found for verdict in verdicts]
    upper = stats.binomtest(any_validated, len(found)).proportion_ci(0.95).high
    shares = ", ".join(f"{name} {every.count(name) / len(every):.3f}" for name in sorted(set(every)))
    pairs = sum(each[2] for each in found) / len(every)
    text = f"{any_validated} of {len(found)} labs validate something ({any_validated / len(found):.3f}"
    print(f"{kind}: {text}, upper bound {upper:.3f}); hypotheses: {shares}; {pairs:.1f} pairs each")


if __name__ == "__main__":
    main()
