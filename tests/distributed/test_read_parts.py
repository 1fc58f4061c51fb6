"""Each rank reads its part of each weight: tied ones, stacked experts, another dtype."""

import os
import subprocess

import forked_ranks
import parts_of_models
import pytest
from architectures import tiny_config, tiny_model
from safetensors.torch import load_file, save_file

from truing.models.builtin import ensure_built

pytestmark = pytest.mark.integration


def two_ranks(*words, ranks=2, **env):
    return subprocess.run(
        [*forked_ranks.command(ranks), parts_of_models.__file__, *map(str, words)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def copy_tokenizer(folder):
    folder.mkdir(exist_ok=True)
    for file in ensure_built("tiny").iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            (folder / file.name).write_bytes(file.read_bytes())


def test_the_parts_of_two_ranks_are_the_weights(tmp_path):
    """Read whole: those of olmo_hybrid, whose file holds two in one tensor, and of mixtral's experts."""
    for model_type in ("olmo_hybrid", "mixtral"):
        copy_tokenizer(tmp_path / model_type)
        tiny_model(tiny_config(model_type)).save_pretrained(tmp_path / model_type)
    built = ["tiny", "float32", "tiny-moe", "float32", "tiny", "bfloat16", "tiny-moe", "bfloat16"]
    written = [tmp_path / "olmo_hybrid", "float32", tmp_path / "mixtral", "float32"]
    process = two_ranks(*built, *written)
    assert process.returncode == 0, process.stderr[-3000:]


@pytest.mark.slow
def test_fsdp_holds_the_parts_of_two_ranks_in_main_memory():
    process = two_ranks("tiny", "float32", "tiny-moe", "bfloat16", OFFLOAD="1")
    assert process.returncode == 0, process.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("env", [{}, {"OFFLOAD": "1"}])
def test_the_parts_of_two_replicas_of_two_ranks_are_the_weights(env):
    process = two_ranks("tiny", "float32", "tiny-moe", "bfloat16", ranks=4, REPLICATE="2", **env)
    assert process.returncode == 0, process.stderr[-3000:]


def test_two_ranks_refuse_files_that_lack_a_weight(tmp_path):
    copy_tokenizer(tmp_path)
    small = ensure_built("tiny")
    (tmp_path / "config.json").write_bytes((small / "config.json").read_bytes())
    weights = load_file(small / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert "among them model.norm.weight" in two_ranks(tmp_path, "float32").stderr


def test_two_ranks_refuse_files_of_another_model(tmp_path):
    small, other = ensure_built("tiny"), tmp_path / "other"
    copy_tokenizer(other)
    (other / "config.json").write_bytes((small / "config.json").read_bytes())
    weights = load_file(small / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    said = two_ranks(f"{small}:{other}", "float32").stderr
    assert said.count("DistributedError: the ranks differ in the model's model.safetensors") == 2
