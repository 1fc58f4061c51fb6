"""How often the lab's bets prove a gain, with and without a true one.

    python -m dev.measure.bets [--experiments 2000] [--pairs 4 8 16 32 64 200] [--error 0.05]

An experiment is tested after each pair. Each line is one distribution of an arm's gain over its baseline,
between −1 and 1, each table one mean gain: the shares of experiments that ever prove it to be above 0, by
bets on the mean (pairs within ±1) and by bets on signs; then those that prove it to be below.
"""

import argparse
from collections.abc import Callable, Mapping

import numpy as np

from truing.lab.stats.e_process import max_wealth
from truing.utils.rng import generator

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]

KINDS: Mapping[str, Draw] = {
    "normal": lambda rng, shape: np.clip(rng.normal(0, 0.2, shape), -0.7, 0.7),
    "outcomes": lambda rng, shape: rng.choice([-0.7, 0.0, 0.7], shape, p=[0.2, 0.6, 0.2]),
    "rare loss": lambda rng, shape: np.where(rng.random(shape) < 0.1, -0.63, 0.07),
    "very rare loss": lambda rng, shape: np.where(rng.random(shape) < 0.01, -0.693, 0.007),
    "rare gain": lambda rng, shape: np.where(rng.random(shape) < 0.1, 0.63, -0.07),
    "skewed right": lambda rng, shape: 0.9 * (rng.beta(0.2, 0.6, shape) - 0.25),
    "skewed left": lambda rng, shape: 0.9 * (0.25 - rng.beta(0.2, 0.6, shape)),
    "constant": lambda _, shape: np.zeros(shape),
}
"""Of mean 0, between −0.7 and 0.7."""


def main() -> None:
    """Print a table for each effect."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiments", type=int, default=2000)
    parser.add_argument("--pairs", type=int, nargs="+", default=[4, 8, 16, 32, 64, 200])
    parser.add_argument("--error", type=float, default=0.05)
    given = parser.parse_args()
    for effect in (0.0, 0.1, 0.3):
        print(f"\n| mean gain {effect:g}: above by mean, by signs; below by mean, by signs |", end=" ")
        print(" | ".join(map(str, given.pairs)), "|\n" + "|---" * (len(given.pairs) + 1) + "|")
        for name, draw in KINDS.items():
            gains = draw(generator("bets", name), (given.experiments, max(given.pairs))) + effect
            cells = [cell_text(gains[:, :pairs], given.error) for pairs in given.pairs]
            print(f"| {name} |", " | ".join(cells), "|", flush=True)


def cell_text(gains: np.ndarray, error: float) -> str:
    """Return a cell: four shares."""
    sides = [(side, within) for side in (gains, -gains) for within in (1.0, None)]
    shares = [(max_wealth(side, 0.0, within) * error >= 1).mean() for side, within in sides]
    return "{:.3f} {:.3f}; {:.3f} {:.3f}".format(*shares)


if __name__ == "__main__":
    main()
