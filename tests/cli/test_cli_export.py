"""`truing export`: from a run directory to a folder that loads, and what it warns of."""

import json

import pytest
import torch
import typer
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from truing.cli.export import export
from truing.config import resolve, to_toml
from truing.models import tiny
from truing.models.lora import trainable_parameters
from truing.training import checkpoint
from truing.training.restore import open_policy

IDS = torch.tensor([[104, 105]])


@pytest.fixture
def run(tmp_path):
    """A run directory with one checkpoint, and the logits of its policy."""
    tiny.build(tmp_path / "model")
    recipe = resolve(
        {
            "name": "x",
            "stages": ["sft"],
            "model": {"name": str(tmp_path / "model"), "device": "cpu"},
            "env": {"name": "arithmetic"},
            "lora": {"rank": 2},
            "sft": {"steps": 1, "learning_rate": 0.1},
            "sampling": {"presence_penalty": 0.5},
        }
    )
    loaded, policy = open_policy(recipe)
    parameters = trainable_parameters(policy)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.add_(0.05)
        logits = policy(input_ids=IDS).logits
    folder = tmp_path / "run"
    checkpoint.save(folder / "checkpoints", "sft", 1, parameters, torch.optim.AdamW(parameters.values()))
    (folder / "recipe.toml").write_text(to_toml(recipe))
    facts = {"model": {"digest": loaded.digest}, "recipe": recipe.model_dump(mode="json")}
    (folder / "run.json").write_text(json.dumps(facts))
    return folder, logits


@pytest.fixture
def truing():
    app = typer.Typer()
    app.command()(export)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_merged_weights_into_the_run(run, truing):
    folder, logits = run
    result = truing(folder)
    assert result.stdout.strip() == str(folder / "export")
    assert "presence_penalty 0.5" in result.stderr
    with torch.no_grad():
        again = AutoModelForCausalLM.from_pretrained(folder / "export")(input_ids=IDS).logits
    torch.testing.assert_close(again, logits, rtol=0, atol=1e-4)


def test_the_adapter_to_a_folder_for_machines(run, truing, tmp_path):
    folder, _ = run
    said = json.loads(truing(folder, "--adapter", "--to", tmp_path / "there", "--json").stdout)
    assert said["path"] == str(tmp_path / "there")
    assert said["kind"] == "adapter"
    assert len(said["warnings"]) == 1
    assert (tmp_path / "there" / "adapter_model.safetensors").is_file()
