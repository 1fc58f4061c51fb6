"""Labs that nobody trained: how often is a verdict wrong, and how often does it see what is there?

    python bench/labs.py FOLDER [--labs 400] [--hypotheses 6] [--seeds 12] [--effect 0] [--jobs 2]

Each lab has as many hypotheses as it says, which share a baseline; each is run, seed by seed, until the lab
itself says that it is settled, by the code that judges real runs. Outcomes are drawn: a baseline of each
seed, and an arm that is another draw of the same kind, moved by the effect. Kinds take turns: normal;
collapsed or not; skewed; with tails of Cauchy's. With no effect the share of labs that validate anything is
what the lab's error bounds; with one, the share of hypotheses that are validated is the power, which the
plan says beforehand.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats

from truing.lab.conduct import begin
from truing.lab.design import BASELINE, arms_of
from truing.lab.folder import Lab, open_lab
from truing.lab.header import Hypothesis
from truing.lab.ledger import Begun, Ledger, Run
from truing.lab.power import power
from truing.lab.verdict import by_pairs, judge
from truing.rng import generator

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
probability = 0.5
cost = "none"
smallest_effect = 1.0
seeds = {seeds}
confirm = [{{ metric = "eval/reward", arm = "arm", above = 0.0 }}]
refute = [{{ metric = "eval/reward", arm = "arm", below = 1.0 }}]

[arms]
arm = ["grpo.learning_rate={rate}"]
```
"""

KINDS: Mapping[str, Callable[[np.random.Generator], float]] = {
    "normal": lambda rng: rng.normal() / math.sqrt(2),
    "collapsed or not": lambda rng: float(rng.random() < 0.8) + 0.02 * rng.normal(),
    "skewed": lambda rng: rng.lognormal(sigma=0.7) / math.sqrt(2),
    "Cauchy": lambda rng: rng.standard_cauchy(),
}
"""Outcomes of a run. Of the first the difference of two has a deviation of 1."""


def make_lab(folder: Path, hypotheses: int, seeds: int) -> Lab:
    """A lab on disk, whose experiments are declared."""
    (folder / "hypotheses").mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "lab.toml").write_text(f'name = "drawn"\nfamily = {hypotheses}\n')
    for i in range(1, hypotheses + 1):
        text = HEADER.format(seeds=seeds, rate=(i + 1) * 1e-3)
        (folder / "hypotheses" / f"h{i:02d}-drawn.md").write_text(text)
    lab, ledger = open_lab(folder), Ledger(folder / "experimental-results" / "ledger")
    for each in lab.hypotheses.values():
        lab = begin(lab, each, ledger, underpowered=True)
    ledger.close()
    return lab


def settle(lab: Lab, number: int, effect: float) -> tuple[str, list[str], int]:
    """The kind of a lab, the verdict on each of its hypotheses, and the pairs that they took."""
    kind = list(KINDS)[number % len(KINDS)]
    pairs = 0
    for name, each in lab.hypotheses.items():
        begun = lab.history.of(Begun, name)[0]
        labels = {label: arm.digest for label, arm in arms_of(lab, each, begun).items()}
        for seed in range(each.header.seeds):
            for label, arm in labels.items():
                moved = 0.0 if label == BASELINE else effect
                lab = lab.and_also(
                    drawn(each, kind, (number, label if label == BASELINE else name, seed), arm, moved)
                )
            pairs += 1
            if by_pairs(lab, each).verdict != "TESTING":
                break
    return kind, [judge(lab, each).verdict for each in lab.hypotheses.values()], pairs


def drawn(hypothesis: Hypothesis, kind: str, key: tuple[int, str, int], arm: str, moved: float) -> Run:
    """A run that came to a number out of a hat."""
    value = KINDS[kind](generator("labs", kind, *key)) + moved
    metrics = {"eval/reward": value}
    return Run(
        f"{arm[:10]}-{key[2]}",
        arm,
        "",
        "",
        hypothesis.id,
        key[1],
        key[2],
        "finished",
        "",
        metrics,
        {"a": value, "b": value},
    )


def main() -> None:
    """Draw labs, judge them, and say how often that was right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="new; the lab that the drawn ones share")
    for name, value in (("--labs", 400), ("--hypotheses", 6), ("--seeds", 12), ("--jobs", 2)):
        parser.add_argument(name, type=int, default=value)
    parser.add_argument("--effect", type=float, default=0.0, help="in deviations of a normal pair")
    given = parser.parse_args()
    lab = make_lab(given.folder, given.hypotheses, given.seeds)
    with ProcessPoolExecutor(given.jobs) as pool:
        found = list(pool.map(partial(settle, lab, effect=given.effect), range(given.labs), chunksize=4))
    for kind in ("all", *KINDS):
        report(kind, [each for each in found if kind in ("all", each[0])])
    error = next(iter(lab.history.of(Begun))).error
    stated = power(given.effect, 1.0, given.seeds, error)
    print(f"stated power of a hypothesis at this effect, by normal pairs: {stated:.3f}")


def report(kind: str, found: list[tuple[str, list[str], int]]) -> None:
    """A line for a kind of outcomes."""
    any_validated = sum("VALIDATED" in verdicts for _, verdicts, _ in found)
    every = [verdict for _, verdicts, _ in found for verdict in verdicts]
    upper = stats.binomtest(any_validated, len(found)).proportion_ci(0.95).high
    shares = ", ".join(f"{name} {every.count(name) / len(every):.3f}" for name in sorted(set(every)))
    pairs = sum(each[2] for each in found) / len(every)
    told = f"{any_validated} of {len(found)} labs validate something ({any_validated / len(found):.3f}"
    print(f"{kind}: {told}, upper bound {upper:.3f}); hypotheses: {shares}; {pairs:.1f} pairs each")


if __name__ == "__main__":
    main()
