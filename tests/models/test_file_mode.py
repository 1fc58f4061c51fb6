"""Files of weights are as readable as the files beside them, whatever wrote them."""

import os

import pytest
import torch

from truing.distributed import shard_files
from truing.engines.vllm import sent_weights
from truing.models.export import export
from truing.models.lora import add_lora
from truing.models.save import save_model
from truing.types.sampling_params import SamplingParams


def export_to(kind):
    def write(loaded, folder):
        policy = add_lora(loaded.model, rank=4, alpha=8.0, dropout=0.0, targets="all-linear", seed=3)
        export(policy, loaded, SamplingParams(stop_ids=(257,)), folder / "out", kind)

    return write


def send(loaded, folder):
    sent_weights._write(loaded.model, {"a": torch.zeros(2)}, folder)


def send_adapter(loaded, folder):
    policy = add_lora(loaded.model, rank=4, alpha=8.0, dropout=0.0, targets="all-linear", seed=3)
    sent_weights._write(policy, {}, folder)


WRITERS = {
    "a model": lambda loaded, folder: save_model(loaded.model, folder),
    "a merged export": export_to("merged"),
    "an adapter": export_to("adapter"),
    "weights for vLLM": send,
    "an adapter for vLLM": send_adapter,
    "a checkpoint": lambda loaded, folder: shard_files._write(
        folder / "a.safetensors", {"a": torch.zeros(2)}, None
    ),
}


@pytest.mark.parametrize("umask", [0o022, 0o007])
@pytest.mark.parametrize("writer", WRITERS)
def test_weights_have_the_mode_of_a_new_file(writer, umask, loaded, tmp_path):
    before = os.umask(umask)
    try:
        WRITERS[writer](loaded, tmp_path)
    finally:
        os.umask(before)
    written = list(tmp_path.rglob("*.safetensors"))
    assert written
    assert {path.stat().st_mode & 0o777 for path in written} == {0o666 & ~umask}
    assert not list(tmp_path.rglob("*.mode"))
