"""The writer takes what trainers have, writes what a reader expects, and never ends a training."""

import ast
import json
import threading

import numpy as np
import pytest
import torch
from folders import ROOT
from safetensors import safe_open
from safetensors.numpy import load_file

from truing import trace_writer
from truing.trace_writer import ALIASES, Origin, Writer
from truing.types import token

IDS = [[7, 8, 3, 4], [9, 5, 6, 1, 2]]
SAMPLED = [[0, 0, 1, 1], [0, 1, 1, 0, 1]]
LOGPROB = [[0.0, 0.0, -0.5, -1.0], [0.0, -0.25, -2.0, 0.0, -3.0]]


def padded(rows, side, fill=0):
    width = max(map(len, rows))
    blank = [[fill] * (width - len(row)) for row in rows]
    return torch.tensor([b + r if side == "left" else r + b for b, r in zip(blank, rows, strict=True)])


def written(folder, number=0):
    path = folder / f"{number:06d}.safetensors"
    with safe_open(path, "np") as file:
        facts = json.loads(file.metadata()["trace"])
    return load_file(path), facts


def given(side):
    """Return the arguments of a step, padded on a side or not at all."""
    if side == "none":
        return {
            "ids": [torch.tensor(row) for row in IDS],
            "sampled": SAMPLED,
            "sampler_logprob": [torch.tensor(row) for row in LOGPROB],
        }
    attention = padded([[1] * len(row) for row in IDS], side)
    return {
        "ids": padded(IDS, side),
        "attention": attention,
        "sampled": padded(SAMPLED, side),
        "sampler_logprob": padded(LOGPROB, side).to(torch.bfloat16),
    }


@pytest.mark.parametrize("side", ["left", "right", "none"])
def test_padding_is_gone_on_either_side(side, tmp_path):
    writer = Writer(tmp_path, producer="test")
    writer.step(0, **given(side), advantage=torch.tensor([1.0, -1.0]), reward=[1, 0], group_id=[3, 3])
    writer.close()
    arrays, facts = written(tmp_path)
    assert arrays["token_ids"].tolist() == [*IDS[0], *IDS[1]]
    assert arrays["row_lengths"].tolist() == [4, 5]
    assert arrays["origin"].tolist() == [0, 0, 4, 4, 0, 4, 4, 2, 4]
    assert arrays["sampler_logprob"].tolist() == [*LOGPROB[0], *LOGPROB[1]]
    assert arrays["advantage"].tolist() == [1.0] * 4 + [-1.0] * 5
    assert arrays["reward"].tolist() == [1.0, 0.0]
    assert facts["group_id"] == ["3", "3"]
    assert facts["origin_source"] == "sampler"
    assert writer.problems == {}


def test_fewer_columns_belong_to_the_last_tokens(tmp_path):
    writer = Writer(tmp_path, producer="test")
    shifted, response = padded(LOGPROB, "right")[:, 1:], padded([row[-3:] for row in SAMPLED], "left")
    given_right = {"ids": padded(IDS, "left"), "attention": padded([[1] * len(r) for r in IDS], "left")}
    writer.step(0, **given_right, loss_mask=response, old_log_probs=padded(LOGPROB, "left")[:, 1:])
    writer.step(1, ids=IDS, loss_mask=[row[-2:] for row in SAMPLED])
    writer.close()
    assert shifted.shape == (2, 4)
    arrays, facts = written(tmp_path)
    assert arrays["loss_mask"].tolist() == [0, 0, 1, 1, 0, 0, 1, 0, 1]
    assert np.isnan(arrays["old_logprob"]).tolist() == [False] * 4 + [True] + [False] * 4
    assert facts["origin_source"] == "loss_mask"
    assert written(tmp_path, 1)[0]["loss_mask"].tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 1]


def test_a_nested_tensor_is_a_list_of_rows(tmp_path):
    writer = Writer(tmp_path, producer="test")
    nested = torch.nested.nested_tensor([torch.tensor(row) for row in IDS], layout=torch.jagged)
    writer.step(0, ids=nested, sampled=SAMPLED)
    writer.close()
    assert written(tmp_path)[0]["token_ids"].tolist() == [*IDS[0], *IDS[1]]


def test_forwards_and_their_gradients_are_those_of_each_row(tmp_path):
    writer = Writer(tmp_path, producer="test")
    step = writer.step(0, **given("right"))
    for optimizer_step in (0, 1):
        for row in (1, 0):
            logprob = padded(LOGPROB, "right")[row : row + 1].clone().requires_grad_()
            seen = step.forward(logprob, rows=[row], optimizer_step=optimizer_step, micro_batch=1 - row)
            assert seen is logprob
            (seen * (row + 1) * (optimizer_step + 1)).sum().backward()
    writer.close()
    arrays, _ = written(tmp_path)
    assert arrays["pass.sample"].tolist() == [0, 0, 1, 1]
    assert arrays["pass.optimizer_step"].tolist() == [0, 1, 0, 1]
    assert arrays["pass.micro_batch"].tolist() == [1, 1, 0, 0]
    assert arrays["pass.token_gradient"].tolist() == [-1.0] * 4 + [-2.0] * 4 + [-2.0] * 5 + [-4.0] * 5
    assert arrays["pass.new_logprob"].tolist() == [*LOGPROB[0] * 2, *LOGPROB[1] * 2]


def test_lists_are_watched_and_a_further_backward_adds(tmp_path):
    writer = Writer(tmp_path, producer="test")
    step = writer.step(0, ids=IDS, sampled=SAMPLED)
    rows = [torch.tensor(row, requires_grad=True) for row in LOGPROB]
    loss = sum(row.sum() for row in step.forward(rows))
    loss.backward(retain_graph=True)
    (2 * loss).backward()
    writer.close()
    assert written(tmp_path)[0]["pass.token_gradient"].tolist() == [-3.0] * 9


def test_tensors_become_numbers_everywhere(tmp_path):
    writer = Writer(tmp_path, producer="test", setup={"clip_low": torch.tensor(0.25)})
    writer.step(
        0,
        **given("left"),
        reward=torch.tensor([[0.0, 1.0], [0.5, 0.25]]),  # of tokens
        advantage=torch.tensor([[1.0], [-1.0]]),
        numbers={"grad_norm": torch.tensor(0.5), "lr": np.float32(0.25)},
        reward_parts={"right": torch.tensor([1.0, 0.0])},
    )
    writer.close()
    arrays, facts = written(tmp_path)
    assert arrays["reward"].tolist() == [1.0, 0.75]
    assert arrays["advantage"].tolist() == [1.0] * 4 + [-1.0] * 5
    assert facts["numbers"] == {"grad_norm": 0.5, "lr": 0.25}
    assert facts["reward_parts"] == {"right": [1.0, 0.0]}
    assert json.loads((tmp_path / "trace.json").read_text())["setup"] == {"clip_low": 0.25}


def test_one_wrong_stream_leaves_the_others(tmp_path, capsys):
    writer = Writer(tmp_path, producer="test")
    step = writer.step(0, **given("left"), old_logprob=torch.zeros(2, 9), reward=[1, 0])
    step.forward(torch.zeros(2, 3))
    writer.close()
    arrays, _ = written(tmp_path)
    assert arrays["reward"].tolist() == [1.0, 0.0]
    assert "old_logprob" not in arrays
    said = capsys.readouterr().err
    assert "step 0: old_logprob: ValueError" in said
    assert "a forward has 3 columns, and the step 5" in said


def test_a_mask_of_weights_is_a_mask(tmp_path, capsys):
    writer = Writer(tmp_path, producer="test")
    writer.step(0, ids=IDS, sampled=SAMPLED, loss_mask=[[0, 0, 0.5, 1], [0, 1, 0, 0, 0]])
    writer.close()
    assert written(tmp_path)[0]["loss_mask"].tolist() == [0, 0, 1, 1, 0, 1, 0, 0, 0]
    assert "loss_mask has values between 0 and 1" in capsys.readouterr().err


WRONG = {
    "no mask": ({"ids": IDS}, "one of `loss_mask` and `sampled`"),
    "no attention": ({"ids": padded(IDS, "left"), "sampled": SAMPLED}, "`attention` is needed"),
    "too long": ({"ids": IDS, "sampled": [[1] * 9, [1]]}, "row 0 has 4 tokens, and a stream has 9"),
    "too few rows": ({"ids": IDS, "sampled": SAMPLED[:1]}, "a stream has 1 rows, and 2 are expected"),
    "too few rewards": ({"ids": IDS, "sampled": SAMPLED, "reward": [1]}, "reward has 1 values"),
    "another shape": (
        {**given("left"), "sampled": torch.ones(2, 9)},
        "a stream of 5 columns has the shape",
    ),
    "a name": ({"ids": IDS, "sampled": SAMPLED, "rewrd": [1, 0]}, "'rewrd' is no name of the format"),
}


@pytest.mark.parametrize("name", WRONG)
def test_nothing_is_raised_into_training_and_what_is_lost_is_named(name, tmp_path, capsys):
    arguments, said = WRONG[name]
    writer = Writer(tmp_path, producer="test")
    for number in (0, 1):
        writer.step(number, **arguments).forward(None)
    writer.step(2, ids=IDS, sampled=SAMPLED)
    writer.close()
    assert capsys.readouterr().err.count(said) == 1
    assert written(tmp_path, 2)[1]["step"] == 2
    head = json.loads((tmp_path / "trace.json").read_text())
    assert any(said in text and count == 2 for text, count in head["problems"].items())


def test_a_full_disk_and_a_slow_one_are_counted(tmp_path, monkeypatch, capsys):
    def full(path, data):
        raise OSError(28, "No space left on device")

    writer = Writer(tmp_path, producer="test")
    monkeypatch.setattr(trace_writer, "_replace", full)
    writer.step(0, ids=IDS, sampled=SAMPLED)
    writer.close()
    assert "No space left on device" in capsys.readouterr().err
    assert writer.written == 0
    monkeypatch.undo()
    slow = Writer(tmp_path / "slow", producer="test", waiting=1)
    monkeypatch.setattr(slow, "_write", lambda step: slow.gate.wait(10))
    slow.gate = threading.Event()
    for number in range(6):
        slow.step(number, ids=IDS, sampled=SAMPLED)
    slow.gate.set()
    slow.close()
    assert slow.dropped >= 3
    assert json.loads((tmp_path / "slow/trace.json").read_text())["dropped"] == slow.dropped


def test_a_step_is_whole_or_not_there(tmp_path, monkeypatch):
    def broken(source, target):
        raise OSError("cut off")

    monkeypatch.setattr(trace_writer.os, "replace", broken)
    with pytest.raises(OSError, match="cut off"):
        trace_writer.write_file(tmp_path / "000000.safetensors", {"a": np.zeros(3, np.int32)}, {})
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]


def test_it_is_one_file_of_numpy_and_python_3_10():
    source = (ROOT / "src/truing/trace_writer.py").read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 10))
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {name.partition(".")[0] for name in imported} - {"numpy"} == {
        *("atexit", "collections", "enum", "json", "os", "pathlib", "queue", "struct", "sys", "threading"),
        "functools",
        "typing",
    }


def test_origins_are_those_of_truing_and_no_alias_is_a_name():
    assert {each.name: int(each) for each in Origin} == {each.name: int(each) for each in token.Origin}
    assert not set(ALIASES) & set(ALIASES.values())
