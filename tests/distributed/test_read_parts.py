"""Each of two ranks reads its part of each weight: tied ones, stacked experts, another dtype."""

import subprocess

import forked_ranks
import parts_of_models
import pytest
from safetensors.torch import load_file, save_file

from truing.models.builtin import ensure_built

pytestmark = pytest.mark.integration


def two_ranks(*words):
    return subprocess.run(
        [*forked_ranks.command(2), parts_of_models.__file__, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_parts_of_two_ranks_are_the_weights():
    process = two_ranks("tiny", "float32", "tiny-moe", "float32", "tiny", "bfloat16", "tiny-moe", "bfloat16")
    assert process.returncode == 0, process.stderr[-3000:]


def test_two_ranks_refuse_files_that_lack_a_weight(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in ensure_built("tiny").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert "among them model.norm.weight" in two_ranks(folder, "float32").stderr
