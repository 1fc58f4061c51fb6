"""`truing export`: from a run directory to a folder that loads, and its warnings."""

import json

import pytest
import torch
import typer
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from truing.cli.export.export import export

IDS = torch.tensor([[104, 105]])


@pytest.fixture
def run(adapter_run):
    """A run directory with one checkpoint, and the logits of its policy."""
    folder, policy = adapter_run((0.05,), presence_penalty=0.5)
    with torch.no_grad():
        return folder, policy(input_ids=IDS).logits


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
    result = json.loads(truing(folder, "--adapter", "--to", tmp_path / "there", "--json").stdout)
    assert result["path"] == str(tmp_path / "there")
    assert result["kind"] == "adapter"
    assert len(result["warnings"]) == 1
    assert (tmp_path / "there" / "adapter_model.safetensors").is_file()
