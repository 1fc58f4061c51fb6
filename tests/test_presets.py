"""Presets: each number says where it is from, and each recipe runs, made small."""

import re

import pytest
from folders import ROOT

import truing
from truing.config import load_recipe
from truing.record import RunReader

PRESETS = sorted((ROOT / "recipes" / "presets").glob("*.toml"))

SMALL = [
    "model.name=tiny",
    "model.device=cpu",
    'env={"name" = "arithmetic", "kinds" = ["max"], "train" = 24, "eval" = 8}',
    "sampling.max_new_tokens=6",
    "sampling.min_new_tokens=",
    "gates.overlong_tokens=",
    "eval.tasks=2",
    "eval.samples=1",
]
STAGE = {"prompts_per_step": 4, "group_size": 2, "steps": 2, "learning_rate": 1e-3}


CUDA = sorted((PRESETS[0].parents[1] / "cuda").glob("*.toml"))


@pytest.mark.parametrize("path", CUDA, ids=lambda path: path.stem)
def test_recipes_for_a_gpu_ask_for_one(path):
    assert load_recipe(path).model.device == "cuda"


def test_there_is_one_for_each_report_and_paper():
    assert {path.stem for path in PRESETS} == {
        *("qwen3-tools", "dual", "musique"),
        *("grpo", "dr-grpo", "dapo", "gspo", "cispo", "ppo"),
    }


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_every_value_says_where_it_is_from(path):
    silent = [
        line
        for line in path.read_text().splitlines()
        if re.match(r"\s*(\w+ =|\")", line) and not re.search(r"# +\S", line) and not line.startswith("name")
    ]
    assert silent in ([], ['stages = ["grpo"]'], ['stages = ["ppo"]'])


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_runs_made_small(path, tmp_path):
    recipe = load_recipe(path)  # as it is, it can be read
    changes = [*SMALL]
    for stage in recipe.stages:
        sizes = {"batch_size": 4, "steps": 2} if stage == "sft" else STAGE
        group = 1 if stage == "ppo" else 2
        changes += [
            f"{stage}.{key}={value}"
            for key, value in {**sizes, "group_size": group}.items()
            if stage != "sft" or key in sizes
        ]
    run = truing.train(load_recipe(path, changes), out=tmp_path / "run").run
    steps = RunReader(run).steps()
    assert [row.stage for row in steps] == [stage for stage in recipe.stages for _ in range(2)]
