"""Whether two checkouts train the same numbers: for a change that must not change any.

    python -m dev.measure.same_numbers OTHER_CHECKOUT [RECIPE ...] [--overrides KEY=VALUE ...]

Trains each recipe with the code of both checkouts and compares, bit by bit, the metrics of all updates (but
time and memory), the streams of all samples, and the weights of the checkpoints. Prints "equal" or the first
difference per recipe; the exit code is 1 if a recipe differs. Default: all recipes in recipes/healthy.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

import torch
from safetensors.torch import load_file

from truing.record.reader import RunReader
from truing.types.sample import Sample

HERE = Path(__file__).resolve().parents[2]

MEASURED = ("throughput/", "time/", "memory/")
"""Prefixes of metrics that depend on the machine."""


def main() -> int:
    """Compare the recipes; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("recipes", nargs="*", type=Path)
    parser.add_argument("--overrides", nargs="*", default=[])
    chosen = parser.parse_args()
    recipes = chosen.recipes or sorted((HERE / "recipes" / "healthy").glob("*.toml"))
    differing = 0
    for recipe in recipes:
        with tempfile.TemporaryDirectory() as folder:
            runs = [Path(folder) / name for name in ("this", "other")]
            for run, checkout in zip(runs, (HERE, chosen.other.resolve()), strict=True):
                train(recipe.resolve(), checkout, run, chosen.overrides)
            first = next(differences(*runs), None)
        print(f"{recipe.stem}: {first or 'equal'}", flush=True)
        differing += first is not None
    return int(differing > 0)


def train(recipe: Path, checkout: Path, run: Path, overrides: list[str]) -> None:
    """Train a recipe with the code of a checkout."""
    command = [sys.executable, "-m", "truing", "train", str(recipe), "--out", str(run), *overrides]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)
    if not (run / "steps.jsonl").exists():
        raise SystemExit(f"{' '.join(command)} trained nothing:\n{done.stdout}\n{done.stderr}")


def differences(this: Path, other: Path) -> Iterator[str]:
    """Yield what differs between two runs."""
    readers = RunReader(this), RunReader(other)
    steps = [reader.steps() for reader in readers]
    if len(steps[0]) != len(steps[1]):
        yield f"{len(steps[0])} and {len(steps[1])} updates"
    for mine, theirs in zip(*steps, strict=False):
        where = f"update {mine.step} of {mine.stage}"
        yield from (f"{where}: {text}" for text in differing_metrics(mine.metrics, theirs.metrics))
        rows = [reader.rows(step) for reader, step in zip(readers, (mine, theirs), strict=True)]
        if len(rows[0]) != len(rows[1]):
            yield f"{where}: {len(rows[0])} and {len(rows[1])} samples"
        for one, two in zip(*rows, strict=False):
            for name in (item.name for item in fields(Sample)):
                if not same(getattr(one.sample, name), getattr(two.sample, name)):
                    yield f"{where}, sample {one.sample.sample_id}: {name}"
            for name in ("new_logprob", "entropy", "token_gradient", "text"):
                if not same(getattr(one, name), getattr(two, name)):
                    yield f"{where}, sample {one.sample.sample_id}: {name}"
    yield from differing_weights(this, other)


def differing_metrics(mine: Mapping[str, float], theirs: Mapping[str, float]) -> Iterator[str]:
    """Yield the metrics of an update that differ."""
    for name in sorted(set(mine) | set(theirs)):
        values = mine.get(name, math.nan), theirs.get(name, math.nan)
        if not name.startswith(MEASURED) and not same(*map(torch.tensor, values)):
            yield f"{name} is {values[0]} and {values[1]}"


def differing_weights(this: Path, other: Path) -> Iterator[str]:
    """Yield the tensors of the last checkpoints that differ."""
    for path in sorted((this / "checkpoints").rglob("*.safetensors")):
        inside = path.relative_to(this)
        if not (other / inside).exists():
            yield f"{inside} is missing in the other run"
            continue
        mine, theirs = load_file(path), load_file(other / inside)
        for name in sorted(set(mine) | set(theirs)):
            if name not in mine or name not in theirs or not same(mine[name], theirs[name]):
                yield f"{inside}: {name}"


def same(one: object, two: object) -> bool:
    """Whether two values are the same to the bit; NaN is NaN."""
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return (
            one.shape == two.shape
            and torch.equal(torch.isnan(one), torch.isnan(two))
            and torch.equal(one.nan_to_num(), two.nan_to_num())
        )
    if hasattr(one, "__dataclass_fields__") and type(one) is type(two):
        return all(same(getattr(one, n), getattr(two, n)) for n in one.__dataclass_fields__)
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two or (one != one and two != two)


if __name__ == "__main__":
    sys.exit(main())
