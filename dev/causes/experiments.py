"""Experiments on runs with one known bottleneck, or none: which change is said to help.

    python -m dev.causes.experiments [NAME …] [--minutes 10] [--steps 30] [--keep FOLDER]

Ends with 1 if a change that is not the known one comes first. A kept experiment goes on.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dev.causes import rewards
from dev.causes.__main__ import history_of
from dev.causes.runs import KnownCause
from truing import experiment
from truing.lab.forks.result import ArmResult

EASY: Mapping[str, Any] = {
    "env.kinds": ["first-3"],
    "grpo.steps": 12,
    "grpo.prompts_per_step": 16,
    "checkpoint_every": 12,
}
"""Tasks that the policy learns within some forty steps at the usual rate."""

HELPS = {
    "rate-low": "grpo.learning_rate",
    "rate-tiny": "grpo.learning_rate",
    "kl": "kl.coef",
    "cold": "sampling.temperature",
    "hot": "sampling.temperature",
    "entropy": "entropy.coef",
    "gate": "gates.min_trained_tokens",
    "decay": "optimizer.weight_decay",
    "warm-up": "optimizer.warmup_steps",
    "overlong": "gates.overlong_penalty",
    "tight-clip": "grpo.clip_low",
}
"""The key that a change of each run must have to help; of other runs none helps."""

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "rate-low": {"grpo.learning_rate": 1e-5},
    "rate-tiny": {"grpo.learning_rate": 1e-6},
    "kl": {"kl.coef": 20.0},
    "cold": {"sampling.temperature": 0.05},
    "hot": {"sampling.temperature": 3.0},
    "entropy": {"entropy.coef": 0.3},
    "gate": {"gates.min_trained_tokens": 100_000, "doctor.stop": False},
    "decay": {"optimizer.weight_decay": 50.0},
    "warm-up": {"optimizer.warmup_steps": 5000},
    "overlong": {"gates.overlong_tokens": 4, "gates.overlong_penalty": 8.0},
    "tight-clip": {"grpo.clip_low": 1e-4, "grpo.clip_high": 1e-4, "grpo.minibatches": 8},
}

NULLS = tuple(
    KnownCause(f"chance-{seed}", "the reward is drawn", (), EASY | {"seed": seed}, (rewards.drawn,))
    for seed in range(20)
)

RUNS = (*(KnownCause(name, "", (), EASY | changes) for name, changes in CHANGES.items()), *NULLS)


def said(results: list[ArmResult]) -> list[ArmResult]:
    """Return the changes that are said to help, the best first."""
    helps = [each for each in results if each.verdict == "helps"]
    return sorted(helps, key=lambda each: -each.effect)


def is_right(name: str, helps: list[ArmResult]) -> bool:
    """Return whether the known change comes first; of a run without one, whether none is said to help."""
    if name not in HELPS:
        return not helps
    return bool(helps) and any(change.startswith(f"{HELPS[name]}=") for change in helps[0].arm.changes)


def main() -> int:
    """Train the runs and their forks, and return 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--minutes", type=float, default=10.0, help="Of each experiment.")
    parser.add_argument("--steps", type=int, default=30, help="Of each fork.")
    parser.add_argument("--keep", type=Path, help="Keep runs and forks here.")
    given, wrong = parser.parse_args(), 0
    with TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        for run in (each for each in RUNS if not given.names or each.name in given.names):
            history_of(run, folder)
            results = experiment(
                folder / run.name, rewards=run.paid_by or None, minutes=given.minutes, steps=given.steps
            )
            helps = said(results)
            wrong += not is_right(run.name, helps)
            print(
                f"{'ok   ' if is_right(run.name, helps) else 'WRONG'} {run.name}:"
                f" {helps[0] if helps else 'nothing is said to help'}",
                flush=True,
            )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
