"""Coverage of 95 % intervals, and how often one of two equal runs is called better.

    python -m dev.measure.coverage [--draws 400] [--tasks 4 8 16 32 64 200] [--jobs 2]

Three tables over distributions of task rewards: intervals of a mean and of pass@2, intervals of a gain
(before and after of each task), and verdicts of `truing compare` between equally good runs, with and
without known bounds. A percentile bootstrap of the same draws is shown for comparison.
"""

import argparse
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from truing.analysis.estimate import Estimate
from truing.analysis.intervals import bounded_interval, is_significant, student_interval
from truing.ops.pass_at_k import pass_at_k
from truing.utils.rng import generator

Draw = Callable[[np.random.Generator, int], np.ndarray]

MEANS: Mapping[str, Draw] = {
    "outcomes, 0.4": lambda rng, n: (rng.random(n) < 0.4) * 1.0,
    "outcomes, 0.02": lambda rng, n: (rng.random(n) < 0.02) * 1.0,
    "mostly alike, rarely all": lambda rng, n: np.where(rng.random(n) < 0.05, 1.0, 0.1 * rng.random(n)),
    "skewed": lambda rng, n: rng.beta(0.2, 1.0, n),
    "normal": lambda rng, n: np.clip(rng.normal(0.5, 0.15, n), 0, 1),
    "pass@2 of 4": lambda rng, n: np.array(
        [pass_at_k(4, int(c), 2) for c in rng.binomial(4, rng.beta(0.3, 1.5, n))]
    ),
}
"""Rewards of a task, between 0 and 1."""

GAINS: Mapping[str, Draw] = {
    "normal": lambda rng, n: np.clip(rng.normal(0.02, 0.15, n), -1, 1),
    "rare 0 to 1": lambda rng, n: (rng.random(n) < 0.05) * 1.0,
    "0/1 either way": lambda rng, n: rng.choice([-1.0, 0.0, 1.0], n, p=[0.05, 0.8, 0.15]),
    "gain, rarely a large loss": lambda rng, n: np.where(rng.random(n) < 0.1, -0.9, 0.1),
    "loss, rarely a large gain": lambda rng, n: np.where(rng.random(n) < 0.1, 0.9, -0.1),
    "skewed": lambda rng, n: rng.beta(0.3, 0.3, n) - rng.beta(0.1, 0.5, n),
}
"""Gains of a task, between −1 and 1."""

EQUAL: Mapping[str, Draw] = {
    "normal": lambda rng, n: np.clip(rng.normal(0, 0.2, n), -1, 1),
    "0/1 either way": lambda rng, n: rng.choice([-1.0, 0.0, 1.0], n, p=[0.2, 0.6, 0.2]),
    "signs": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "heavy tails": lambda rng, n: np.clip(0.02 * rng.standard_cauchy(n), -1, 1),
    "constant": lambda rng, n: np.zeros(n),
}
"""Differences of two equally good runs: exchangeable."""


TABLES = {"means": (MEANS, 0.0), "gains": (GAINS, -1.0)}
"""With the lower bound of a value; the upper is 1."""


def resampled(rng: np.random.Generator, values: np.ndarray) -> Estimate:
    """Return the interval of a percentile bootstrap, for comparison."""
    means = rng.choice(values, (999, len(values))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high), len(values), None)


def covered(of: str, draws: int, cell: tuple[str, int]) -> tuple[float, ...]:
    """Return the coverage of the bounded interval and of the bootstrap, and the mean width of the former."""
    (table, least), (name, tasks) = TABLES[of], cell
    truth = float(table[name](generator("coverage", name), 2_000_000).mean())
    held, widths = np.zeros(2), 0.0
    for i in range(draws):
        rng = generator("coverage", name, tasks, i)
        values = table[name](rng, tasks)
        both = bounded_interval(values.tolist(), (least, 1.0)), resampled(rng, values)
        held += [each.low <= truth <= each.high for each in both]
        widths += both[0].high - both[0].low
    return held[0] / draws, held[1] / draws, widths / draws


def called(draws: int, cell: tuple[str, int]) -> tuple[float, ...]:
    """Return the shares of equal runs called different: with bounds, without, and by the bootstrap."""
    name, tasks = cell
    wrong = np.zeros(3)
    for i in range(draws):
        rng = generator("coverage", "equal", name, tasks, i)
        differences = EQUAL[name](rng, tasks)
        values, boot = differences.tolist(), resampled(rng, differences)
        found = bounded_interval(values, (-1.0, 1.0)), student_interval(values)
        wrong += [*(is_significant(each, values) for each in found), boot.low > 0 or boot.high < 0]
    return tuple(wrong / draws)


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--tasks", type=int, nargs="+", default=[4, 8, 16, 32, 64, 200])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    tables = {
        "means: within bounds, bootstrap (width)": (MEANS, partial(covered, "means", given.draws)),
        "gains: within bounds, bootstrap (width)": (GAINS, partial(covered, "gains", given.draws)),
        "equal runs called different: with bounds, without, bootstrap": (EQUAL, partial(called, given.draws)),
    }
    with ProcessPoolExecutor(given.jobs) as pool:
        for title, (table, measure) in tables.items():
            cells = [(name, tasks) for name in table for tasks in given.tasks]
            found = dict(zip(cells, pool.map(measure, cells), strict=True))
            print(f"\n| {title} |", " | ".join(map(str, given.tasks)), "|")
            print("|---" * (len(given.tasks) + 1) + "|")
            for name in table:
                print(
                    f"| {name} |", " | ".join(cell_text(found[name, n]) for n in given.tasks), "|", flush=True
                )


def cell_text(cell: tuple[float, ...]) -> str:
    """Return a cell of a table."""
    return " ".join(f"{each:.2f}" for each in cell)


if __name__ == "__main__":
    main()
