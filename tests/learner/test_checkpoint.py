"""Checkpoints restore bit for bit, or an error names what is wrong; a crash leaves the previous one."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import killed_saves
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from truing.config import OptimizerConfig
from truing.distributed import shard_files
from truing.errors import RecordError
from truing.learner import checkpoint
from truing.learner.optimizer import make_optimizer

FILES = ["trainable.safetensors", "optimizer.safetensors", "state.json"]


def make(seed=0, width=3):
    """A small model, two of whose parameters were updated, and its optimiser."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, width), nn.Linear(width, 1))
    parameters = dict(model.named_parameters())
    optimizer = make_optimizer(OptimizerConfig(), parameters)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    return model, parameters, optimizer


def load(newest, parameters, optimizer):
    checkpoint.load(newest, {"trainable": parameters}, optimizer)


def train(model, optimizer, steps=1):
    for step in range(steps):
        x = torch.linspace(-1, 1, 8, dtype=torch.float32).view(4, 2) + step
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@pytest.fixture
def saved(tmp_path):
    model, parameters, optimizer = make()
    train(model, optimizer, 3)
    checkpoint.save(tmp_path, checkpoint.CheckpointState("sft", 3), {"trainable": parameters}, optimizer)
    return tmp_path, model, parameters, optimizer


def test_weights_and_moments_come_back_and_training_goes_on_bit_for_bit(saved):
    folder, model, parameters, optimizer = saved
    twin, others, fresh = make(seed=1)
    load(checkpoint.find_newest(folder), others, fresh)
    for name, parameter in parameters.items():
        state, restored = optimizer.state[parameter], fresh.state[others[name]]
        assert state.keys() == restored.keys()
        assert all(torch.equal(state[key], restored[key]) for key in state), name
    for one, other in ((model, optimizer), (twin, fresh)):
        train(one, other, 2)
    assert all(torch.equal(parameters[name], others[name]) for name in parameters)


def test_without_its_moments_training_would_go_on_differently(saved):
    folder, model, parameters, optimizer = saved
    twin, others, fresh = make(seed=1)
    checkpoint.load_table(checkpoint.find_newest(folder), "trainable", others)
    for one, other in ((model, optimizer), (twin, fresh)):
        train(one, other, 2)
    assert not all(torch.equal(parameters[name], others[name]) for name in parameters)


def test_a_parameter_that_was_never_updated_has_no_state(tmp_path):
    _, parameters, optimizer = make()
    checkpoint.save(tmp_path, checkpoint.CheckpointState("sft", 0), {"trainable": parameters}, optimizer)
    _, others, fresh = make()
    checkpoint.load(checkpoint.find_newest(tmp_path), {"trainable": others}, fresh)
    assert not fresh.state


def test_the_newest_is_the_last_one_written(saved):
    folder, model, parameters, optimizer = saved
    train(model, optimizer)
    state = checkpoint.save(
        folder, checkpoint.CheckpointState("grpo", 1), {"trainable": parameters}, optimizer
    )
    newest = checkpoint.find_newest(folder)
    assert newest.name == "grpo-000001"
    assert checkpoint.read_state(newest) == state
    assert sorted(path.name for path in folder.iterdir()) == ["grpo-000001", "last", "sft-000003"]
    checkpoint.remove(folder / "sft-000003")
    assert not (folder / "sft-000003").exists()


def test_there_is_none_before_the_first(tmp_path):
    assert checkpoint.find_newest(tmp_path) is None


@pytest.mark.parametrize(
    ("module", "crash", "call"),
    [
        (shard_files, "save_file", 0),  # the weights
        (shard_files, "save_file", 1),  # the moments
        (checkpoint, "write_atomically", 0),  # the state
        (checkpoint, "move_into_place", 0),  # the folder
        (checkpoint, "write_atomically", 1),  # the name of the newest
    ],
)
def test_a_crash_while_writing_leaves_the_one_before(saved, monkeypatch, module, crash, call):
    folder, model, parameters, optimizer = saved
    train(model, optimizer)
    real, calls = getattr(module, crash), []

    def crashing(*args):
        calls.append(args)
        if len(calls) > call:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, crash, crashing)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(folder, checkpoint.CheckpointState("sft", 4), {"trainable": parameters}, optimizer)
    monkeypatch.undo()
    assert checkpoint.find_newest(folder).name == "sft-000003"
    checkpoint.load_table(checkpoint.find_newest(folder), "trainable", make()[1])
    # what the crash left is no hindrance
    checkpoint.save(folder, checkpoint.CheckpointState("sft", 4), {"trainable": parameters}, optimizer)
    assert checkpoint.find_newest(folder).name == "sft-000004"
    checkpoint.load_table(checkpoint.find_newest(folder), "trainable", make()[1])


@pytest.mark.integration
def test_a_process_that_is_killed_while_writing_leaves_the_one_before(tmp_path):
    subprocess.run([sys.executable, killed_saves.__file__, tmp_path], check=True, timeout=120)
    for moment in killed_saves.MOMENTS:
        newest = checkpoint.find_newest(tmp_path / moment)
        assert newest.name == "sft-000001"
        expected, _ = killed_saves.made()
        table, optimizer = killed_saves.made()
        optimizer.step()
        checkpoint.load(newest, {"trainable": table}, optimizer)
        assert torch.equal(table["w"], expected["w"]), moment
        killed_saves.save(tmp_path / moment, 2)
        assert checkpoint.find_newest(tmp_path / moment).name == "sft-000002"


def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(saved):
    folder, _, parameters, optimizer = saved
    shutil.rmtree(folder)
    folder.write_text("in the way")
    with pytest.raises(RecordError, match="cannot be written") as error:
        checkpoint.save(folder, checkpoint.CheckpointState("sft", 4), {"trainable": parameters}, optimizer)
    assert "--resume" in error.value.remedy


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_a_damaged_file_is_named(saved, name, damage):
    newest = checkpoint.find_newest(saved[0])
    path = newest / name
    if damage == "missing":
        path.unlink()
    else:
        os.truncate(path, 0 if damage == "empty" else path.stat().st_size // 2)
    _, parameters, optimizer = make()
    with pytest.raises(RecordError, match=f"{name} is missing or damaged"):
        load(newest, parameters, optimizer)


def test_one_flipped_bit_of_the_weights_is_noticed_before_any_is_loaded(saved):
    newest = checkpoint.find_newest(saved[0])
    path = newest / "trainable.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    _, parameters, _ = make(seed=1)
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    with pytest.raises(RecordError, match=r"trainable\.safetensors is missing or damaged"):
        checkpoint.load_table(newest, "trainable", parameters)
    assert all(torch.equal(parameters[name], before[name]) for name in parameters)


def test_another_model_is_refused(saved):
    _, parameters, _ = make()
    parameters["more"] = nn.Parameter(torch.zeros(1))
    with pytest.raises(RecordError, match="another model or adapter") as error:
        checkpoint.load_table(checkpoint.find_newest(saved[0]), "trainable", parameters)
    assert error.value.got == ["more"]


def test_a_model_of_other_shapes_is_refused(saved):
    _, parameters, _ = make(width=4)
    with pytest.raises(RecordError, match="another model or adapter"):
        checkpoint.load_table(checkpoint.find_newest(saved[0]), "trainable", parameters)


def test_going_back_drops_what_came_after_and_keeps_other_stages(saved):
    folder, model, parameters, optimizer = saved
    for step in (0, 2, 4):
        train(model, optimizer)
        state = checkpoint.CheckpointState("grpo", step, coefficients={"kl_coef": 0.1}, rollbacks=1)
        checkpoint.save(folder, state, {"trainable": parameters}, optimizer)
    assert checkpoint.saved_steps(folder, "grpo") == [0, 2, 4]
    state = checkpoint.read_state(folder / "grpo-000002")
    assert state.rollbacks == 1
    checkpoint.rewind_to(folder, replace(state, rollbacks=2))
    assert checkpoint.find_newest(folder).name == "grpo-000002"
    assert checkpoint.read_state(folder / "grpo-000002") == replace(state, rollbacks=2)
    assert checkpoint.saved_steps(folder, "grpo") == [0, 2]
    assert checkpoint.saved_steps(folder, "sft") == [3]


def test_a_weight_without_a_moment_has_none_after_going_back(saved):
    folder, model, parameters, optimizer = saved
    _, _, fresh = make()
    checkpoint.save(folder, checkpoint.CheckpointState("grpo", 0), {"trainable": parameters}, fresh)
    train(model, optimizer)
    load(folder / "grpo-000000", parameters, optimizer)
    assert not optimizer.state


@pytest.fixture
def shards(saved):
    """The weights of the checkpoint as two ranks write them: rows of a matrix in two files."""
    newest = checkpoint.find_newest(saved[0])
    whole = load_file(newest / "trainable.safetensors")
    (newest / "trainable.safetensors").unlink()
    for rank in range(2):
        rows = {name: tensor.tensor_split(2)[rank] for name, tensor in whole.items()}
        offsets = {
            name: {"saved_offsets": [rank and len(tensor.tensor_split(2)[0])] + [0] * (tensor.ndim - 1)}
            for name, tensor in whole.items()
        }
        header = {"DCP_SHARDING_INFO": json.dumps(offsets)}
        save_file(
            {name: tensor.contiguous() for name, tensor in rows.items()},
            newest / f"trainable-0000{rank + 1}-of-00002.safetensors",
            header,
        )
    return newest, saved[2]


def test_shards_of_two_ranks_are_one_table(shards):
    newest, parameters = shards
    _, others, fresh = make(seed=1)
    load(newest, others, fresh)
    assert all(torch.equal(parameters[name], others[name]) for name in parameters)


@pytest.mark.parametrize("damage", ["missing", "cut", "another header"])
def test_a_damaged_shard_is_named(shards, damage):
    newest, _ = shards
    path = newest / "trainable-00002-of-00002.safetensors"
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        os.truncate(path, path.stat().st_size // 2)
    else:
        save_file(load_file(path), path, {"DCP_SHARDING_INFO": '{"0.weight": {}}'})
    with pytest.raises(RecordError, match=rf"{path.name} is missing or damaged"):
        load(newest, *make()[1:])
