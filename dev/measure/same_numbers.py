"""Whether two checkouts train the same numbers: for a change that must not change any.

    python -m dev.measure.same_numbers OTHER_CHECKOUT [RECIPE ...] [--overrides KEY=VALUE ...]

Trains each recipe with the code of both checkouts, lets each read its own run (``dev.measure.run_numbers``),
and compares, bit by bit, the metrics of all steps (but time and memory), their facts, the streams of all
samples, the weights of the checkpoints, and the findings. A recipe with vLLM servers gets fake ones. Prints
"equal" or the first difference per recipe; the exit code is 1 if a recipe differs. Default: all recipes in
recipes/healthy.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

HERE = Path(__file__).resolve().parents[2]

TRAIN = """
from dev.faults.fake_vllm.threads import fake_vllm
from truing.cli import main
with fake_vllm():
    main()
"""

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
            files = [Path(folder) / f"{name}.safetensors" for name in ("this", "other")]
            for file, checkout in zip(files, (HERE, chosen.other.resolve()), strict=True):
                write_numbers(recipe.resolve(), checkout, file, chosen.overrides)
            first = next(differences(*files), None)
        print(f"{recipe.stem}: {first or 'equal'}", flush=True)
        differing += first is not None
    return int(differing > 0)


def write_numbers(recipe: Path, checkout: Path, file: Path, overrides: list[str]) -> None:
    """Train a recipe with the code of a checkout, and write the numbers of the run to a file."""
    run = file.with_suffix("")
    environment = os.environ | {"PYTHONPATH": f"{checkout / 'src'}:{checkout}"}
    train = ["-c", TRAIN, "train", str(recipe), "--out", str(run), *overrides]
    for command in (train, ["-m", "dev.measure.run_numbers", str(run), str(file)]):
        done = subprocess.run(
            [sys.executable, *command],
            env=environment,
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )
    if not file.exists():
        raise SystemExit(f"{recipe} has no numbers in {checkout}:\n{done.stdout}\n{done.stderr}")


def differences(this: Path, other: Path) -> Iterator[str]:
    """Yield what differs between the numbers of two runs."""
    with safe_open(this, "pt") as mine, safe_open(other, "pt") as theirs:
        names = [set(file.keys()) for file in (mine, theirs)]
        yield from (
            f"{name} is in one run only" for name in sorted(names[0] ^ names[1]) if not is_measured(name)
        )
        for name in sorted(names[0] & names[1]):
            if not is_measured(name) and not same(mine.get_tensor(name), theirs.get_tensor(name)):
                yield name
        for what in ("texts", "facts"):
            one, two = (json.loads(file.metadata()[what]) for file in (mine, theirs))
            for name in sorted(one.keys() | two.keys()):
                if one.get(name) != two.get(name):
                    yield f"{what} of {name}: {one.get(name)!s:.300} and {two.get(name)!s:.300}"
        one, two = (json.loads(file.metadata()["findings"]) for file in (mine, theirs))
        if one != two:
            yield f"findings: {one!s:.300} and {two!s:.300}"


def is_measured(name: str) -> bool:
    """Return whether a number depends on the machine."""
    return name.rpartition(" ")[2].startswith(MEASURED)


def same(one: Tensor, two: Tensor) -> bool:
    """Return whether two tensors are the same to the bit; NaN is NaN."""
    if one.shape != two.shape:
        return False
    return torch.equal(torch.isnan(one), torch.isnan(two)) and torch.equal(one.nan_to_num(), two.nan_to_num())


if __name__ == "__main__":
    sys.exit(main())
