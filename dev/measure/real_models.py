"""Trains real models in healthy recipes at random, with every audit: prints each finding of every run.

    python -m dev.measure.real_models --minutes 40 [--seed 0] MODEL …

A model is a built-in name, folder or GGUF file (`smollm2-135m`, Gemma 3 270M). Models, lengths, groups,
threads, adapters and sampling parameters follow from the seed; a SUSPECT of a rule on sampler, ratios,
reference or optimizer is a false alarm. Each run prints the largest differences from a plain forward, in
roundings.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dev.faults.fault import Fault
from dev.faults.run_fault import RUN_DIR, run_fault
from truing.measurements.audit_schedule import AUDITED_FAMILIES
from truing.record import RunReader

EXAMPLE = "The sum of {a} and {b} is {c}. "
"""A sentence of a system message, which sets the length of the prompt."""


def draw(seed: int, models: list[str]) -> Fault:
    """Return the healthy recipe of a seed."""
    rng = random.Random(seed)
    stage, full = rng.choice(("grpo", "grpo", "rloo", "ppo")), rng.random() < 0.5
    prompts, group = rng.choice(((1, 4), (2, 2), (1, 6), (3, 2)))
    sentences = "".join(EXAMPLE.format(a=k, b=7 * k, c=8 * k) for k in range(rng.choice((0, 3, 15))))
    changes: dict[str, Any] = {
        "seed": seed,
        "stages": [stage],
        "model.name": models[seed % len(models)],
        "model.threads": rng.choice((1, 2)),
        "env.system": sentences.strip(),
        "sampling.max_new_tokens": rng.choice((4, 8, 16)),
        "sampling.temperature": rng.choice((1.0, 1.0, 0.7, 1.3)),
        "kl.coef": rng.choice((0.0, 0.05)),
        "eval.tasks": 0,
        "env.train": 16,
        f"{stage}.steps": 2,
        f"{stage}.prompts_per_step": prompts,
        f"{stage}.group_size": group,
        f"{stage}.learning_rate": 1e-5 if full else 1e-4,
    }
    if not full:
        changes["lora"] = {"rank": rng.choice((4, 16))}
    if stage != "ppo" and rng.random() < 0.3:
        changes[f"{stage}.inner_epochs"] = 2
    return Fault(f"real-{seed}", (), "", nullcontext, (), changes, healthy=True)


def differences(run: Path) -> dict[str, float]:
    """Return the largest difference from a plain forward of each source, in roundings, over the audits."""
    most: dict[str, float] = {}
    for row in RunReader(run).iter_steps():
        rounding = row.facts.get("null", {}).get("rounding")
        for name in ("trainer", "sampler", "reference"):
            if rounding and name in row.facts.get("plain", {}):
                most[name] = max(most.get(name, 0.0), round(row.facts["plain"][name] / rounding, 2))
    return most


def train(seed: int, models: list[str]) -> dict[str, Any]:
    """Train the recipe of a seed; return its findings."""
    run, begun = draw(seed, models), time.monotonic()
    with TemporaryDirectory() as keep:
        outcome = run_fault(run, Path(keep))
        in_roundings = differences(Path(keep) / run.name / RUN_DIR)
    findings = [
        f"{each.code} {each.claim.verdict} in {each.step}: {each.claim.what}; got {each.claim.got},"
        f" expected {each.claim.expected}"
        for each in outcome.fired
    ]
    wrong = any(each.code.startswith(AUDITED_FAMILIES) for each in outcome.fired) or bool(outcome.error)
    changes = {key: value for key, value in run.changes.items() if key != "env.system"}
    changes["system"] = len(run.changes["env.system"])
    return {
        "wrong": wrong,
        "seconds": round(time.monotonic() - begun),
        "findings": [*findings, *outcome.broken, *([outcome.error] if outcome.error else [])],
        "roundings": in_roundings,
        "changes": changes,
    }


def main() -> int:
    """Train until the time is over; return 1 if a run has a false alarm."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first recipe; the others follow")
    args = parser.parse_args()
    counts, end = Counter[str](), time.monotonic() + 60 * args.minutes
    # a process per run: what one leaves in memory would add up
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for seed in itertools.count(args.seed):
            if time.monotonic() > end:
                break
            result = pool.submit(train, seed, args.models).result()
            counts["wrong" if result["wrong"] else "healthy"] += 1
            print(json.dumps(result), flush=True)
    print(f"seeds {args.seed} to {args.seed + counts.total() - 1}: {dict(counts)}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
