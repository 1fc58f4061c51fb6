"""Presets: each number says where it is from, and each recipe runs, made small."""

import re

import pytest
from folders import ROOT
from transformers import Qwen3Config

import truing
from truing.config import load_recipe
from truing.learner.memory_prediction import predict_memory
from truing.record import RunReader
from truing.utils.memory import GB

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


QWEN3 = {"vocab_size": 151_936, "num_key_value_heads": 8, "head_dim": 128}
NAMES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "tie_word_embeddings",
)
SHAPES = {
    "Qwen/Qwen3-0.6B": (1024, 28, 16, 3072, True),
    "Qwen/Qwen3-4B": (2560, 36, 32, 9728, True),
    "Qwen/Qwen3-8B": (4096, 36, 32, 12_288, False),
    "Qwen/Qwen3-14B": (5120, 40, 40, 17_408, False),
}


def test_there_is_a_recipe_for_each_size_of_card():
    assert {path.stem for path in CUDA} == {"24gb", "24gb-nf4", "48gb", "80gb", "ppo"}


@pytest.mark.parametrize("path", CUDA, ids=lambda path: path.stem)
def test_recipes_for_a_gpu_ask_for_one_and_need_what_they_say(path, tmp_path):
    """The stated gigabytes are those of the prediction by shapes, and leave half of the card, or nearly."""
    recipe, text = load_recipe(path), path.read_text(encoding="utf-8")
    assert recipe.model.device == "cuda"
    card = re.search(r"one CUDA card of (\d+) GB", text)
    need = re.search(r"needs ([\d.]+) GB for weights and optimizer by their shapes", text)
    shape = dict(zip(NAMES, SHAPES[recipe.model.name], strict=True))
    Qwen3Config(**QWEN3, **shape).save_pretrained(tmp_path)
    predicted = predict_memory(load_recipe(path, [f"model.name={tmp_path}"])).total / GB
    assert need[1] == f"{predicted:.2f}"
    assert predicted < 0.5 * int(card[1])
    assert "# Not run on a GPU: docs/benchmarks.md." in text


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


@pytest.mark.integration
@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_runs_made_small(path, tmp_path):
    recipe = load_recipe(path)  # as it is, it can be read
    changes = [*SMALL]
    for stage in recipe.stages:
        sizes = {"batch_size": 4, "steps": 2} if stage == "sft" else STAGE
        if stage != "sft":
            group = 1 if stage == "ppo" else 2
            sizes = {**sizes, "group_size": group, "minibatches": min(recipe.stage(stage).minibatches, 4)}
        changes += [f"{stage}.{key}={value}" for key, value in sizes.items()]
    run = truing.train(load_recipe(path, changes), out=tmp_path / "run").run
    steps = RunReader(run).steps()
    assert [row.stage for row in steps] == [stage for stage in recipe.stages for _ in range(2)]
