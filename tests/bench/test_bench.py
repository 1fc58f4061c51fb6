"""Ratios and bounds by hand; what the two sides measure is theirs."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from truing.bench import compare as compare_module
from truing.bench.cases import CASES, Case, letters
from truing.bench.compare import BenchError, compare, run_side
from truing.bench.limit import Rates, Weights, bounds, weights_of
from truing.cli import app

SMALL = Case("small", "", prompts=2, group_size=4, new_tokens=11, lora=False)


def test_ratios_are_of_medians_and_above_one_where_truing_is_better(monkeypatch):
    turns = iter([(1.0, 6.0), (3.0, 2.0), (2.0, 5.0)])
    taken = {}

    def side(name, case, steps):
        taken.setdefault(name, []).append((case, steps))
        if name == "truing":
            taken["now"] = next(turns)
        return {"step": taken["now"][name == "trl"]}

    monkeypatch.setattr(compare_module, "run_side", side)
    found = compare(SMALL, pairs=3, steps=2)
    assert found["ratio_step"] == 2.5  # medians 2 and 5
    assert found["truing"] == {"step": 2.0}
    assert taken["trl"] == [(SMALL, 2)] * 3


def test_a_side_that_fails_is_told_with_what_it_said():
    unknown = Case("small", "", 1, 2, 3, lora=False, model="no-such-model")
    with pytest.raises(BenchError, match="no-such-model"):
        run_side("truing", unknown, 2)


def test_prompts_differ_and_answers_of_a_group_may():
    for case in CASES.values():
        assert len({said[-1]["content"] for said in case.conversations(9)}) == 9
    assert letters("aeb") == pytest.approx(2 / 3)
    assert letters("") == 0


def test_bounds_by_hand():
    """100 weights in the layers and 10 in the head; 1,000 operations and 440 bytes a second."""
    ids = [torch.tensor([1, 2, 3, 9]), torch.tensor([1, 2, 3, 8]), torch.tensor([1, 2, 4, 7])]
    samples = [SimpleNamespace(token_ids=each, turns=[SimpleNamespace(start=3)]) for each in ids]
    record = SimpleNamespace(metrics={"tokens/computed": 50.0, "tokens/scored": 20.0}, samples=samples)
    weights, rates = Weights(body=100, head=10), Rates(gemm=1000.0, read=440.0)
    found = bounds(SMALL, record, weights, rates)
    forward = 2 * (100 * 50 + 10 * 20) / 1000
    assert found == pytest.approx(
        {
            "prefill": 2 * (100 * 4 + 10 * 8) / 1000,  # the prompts' distinct tokens: 1 2 3 4
            "decode": 10 * max(4 * 110 / 440, 2 * 110 * 8 / 1000),
            "forward": forward,
            "backward": 2 * forward,
            "optimizer": 7 * 4 * 110 / 440,
        }
    )
    lora = Case("small", "", 2, 4, 11, lora=True)
    assert bounds(lora, record, weights, rates)["backward"] == pytest.approx(forward)


def test_the_head_is_the_embedding(tmp_path):
    tensors = {"model.embed_tokens.weight": torch.zeros(5, 2), "model.norm.weight": torch.zeros(3)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert weights_of(tmp_path) == Weights(body=3, head=10)


@pytest.mark.parametrize("command", ["trl", "limit"])
def test_a_case_that_there_is_not_is_an_error(command):
    result = CliRunner().invoke(app, ["bench", command, "--case", "shrot"])
    assert "there is no case 'shrot'" in str(result.exception)


@pytest.mark.slow
def test_a_step_has_its_limits():
    result = CliRunner().invoke(app, ["bench", "limit", "--case", "short", "--json"])
    found = json.loads(result.stdout.splitlines()[-1])
    assert set(found["parts"]) == {"prefill", "decode", "forward", "backward", "optimizer"}
    assert all(0 < part["share"] < 1 for part in found["parts"].values())
