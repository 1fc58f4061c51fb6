"""A run that starts from an adapter of peft: what it refers to, evaluates, resumes and exports."""

import json
import subprocess
import sys

import pytest
from peft_adapters import edit, logprobs, read_with_peft, save_adapter
from runs import Interrupt, assert_same_run, crash_at
from safetensors.torch import load_file, save_file

import truing
from truing.config import to_toml
from truing.errors import ModelError, RecordError
from truing.learner.restore import restore_policy
from truing.models.digest import digest
from truing.models.export import export
from truing.models.load_policy import load_policy
from truing.models.lora import trainable_parameters
from truing.models.resolve import resolve_model
from truing.record import RunReader

WEIGHTS = "adapter_model.safetensors"

GRPO = {
    "stages": ["grpo"],
    "model": {"device": "cpu"},
    "kl": {"coef": 0.1},
    "grpo": {"steps": 2},
    "entropy": {"coef": 0.01},  # which moves the policy, whatever it earns
    "doctor": {"budget": 1.0},
}


@pytest.fixture
def folder(tmp_path):
    """A rank-stabilised adapter of peft on the tiny model."""
    save_adapter(resolve_model("tiny"), tmp_path / "adapter", use_rslora=True, target_modules="all-linear")
    return tmp_path / "adapter"


@pytest.fixture
def start(mini, folder):
    """``start(grpo={…})``: the table of a recipe that starts from that adapter."""
    return lambda **changes: mini(**GRPO | changes, lora={"adapter": str(folder)})


def train(table, out, **options):
    events = []
    truing.train(table, out=out, on_event=lambda kind, facts: events.append((kind, facts)), **options)
    return events


def exported(run, to):
    """Return what peft computes with the exported adapter of a run."""
    restored = restore_policy(run)
    export(restored.policy, restored.loaded, restored.sampling_params, to, "adapter")
    return logprobs(read_with_peft(restored.loaded.path, to)), logprobs(restored.policy)


@pytest.mark.integration
def test_the_adapter_is_the_reference_and_the_base_evaluation_and_is_exported_again(start, folder, tmp_path):
    before = truing.evaluate(written(start(), tmp_path))
    events = train(start(), tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    first, *_, last = reader.steps()
    kls = {name: value for name, value in first.metrics.items() if name.startswith("kl_")}
    assert kls == dict.fromkeys(kls.keys() | {"kl_all/k1", "kl_all/k3", "kl_trained/k3"}, 0.0)
    assert last.metrics["kl_all/k3"] > 0
    assert first.facts["reference"]["digest"] == first.facts["reference"]["declared"]
    assert first.facts["sync"]["largest"] < 1e-6  # by the config's scale, α / √r
    _, policy = load_policy(truing.config.resolve(start()))
    assert reader.run_json()["trainable_digest"] == digest(trainable_parameters(policy))
    base = next(facts for kind, facts in events if kind == "eval" and facts["name"] == "base")
    assert base["reward"] == before.reward
    notes = [facts["text"] for kind, facts in events if kind == "note"]
    assert any(f"starts from the adapter {folder} (rank 4, alpha 8)" in text for text in notes)
    assert not [facts for kind, facts in events if kind == "finding" and "PROVEN" in facts["text"]]

    by_peft, by_truing = exported(tmp_path / "run", tmp_path / "out")
    assert (by_peft - by_truing).abs().max() < 2e-6
    assert (by_peft - logprobs(policy)).abs().max() > 1e-3  # it was trained
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["use_rslora"] is True


def written(table, folder):
    file = folder / "recipe.toml"
    file.write_text(to_toml(truing.config.resolve(table)))
    return file


@pytest.mark.integration
def test_a_resumed_run_ends_as_if_it_had_not_stopped_and_needs_the_same_adapter(start, folder, tmp_path):
    table = start(checkpoint_every=1, grpo={"steps": 2}, doctor={"budget": 0.02}, eval={"base": False})
    train(table, tmp_path / "whole")
    with pytest.raises(Interrupt):
        truing.train(table, out=tmp_path / "stopped", on_event=crash_at("grpo", 1))
    saved = (folder / WEIGHTS).read_bytes()
    weights = load_file(folder / WEIGHTS)
    weights[min(weights)][0, 0] += 1
    save_file(weights, folder / WEIGHTS)
    for again in (
        lambda: train(table, tmp_path / "stopped", resume=True),
        lambda: restore_policy(tmp_path / "stopped"),
        lambda: truing.evaluate(tmp_path / "stopped"),
    ):
        with pytest.raises(RecordError, match="the adapter that this run started from has changed"):
            again()
    (folder / WEIGHTS).write_bytes(saved)
    train(table, tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped", audits=False)


def test_what_differs_from_the_adapters_training_is_reported(start, folder, tmp_path):
    edit(folder / "adapter_config.json", lora_dropout=0.05, base_model_name_or_path=None)
    (folder / "chat_template.jinja").write_text("another")
    events = train(start(grpo={"steps": 1}, eval={"base": False}), tmp_path / "run")
    notes = " ".join(facts["text"] for kind, facts in events if kind == "note")
    assert "saved with dropout 0.05; lora.dropout is 0" in notes
    assert "does not name the model that it was trained on" in notes
    assert "has another chat template than the model" in notes


def test_the_check_before_training_reads_the_adapter_too(start, folder):
    assert truing.check(start()).findings == []
    edit(folder / "adapter_config.json", use_dora=True)
    with pytest.raises(ModelError, match="use_dora True"):
        truing.check(start())


@pytest.mark.integration
def test_a_reference_of_a_run_in_bfloat16_is_the_adapter_on_the_shared_base(start, tmp_path):
    train(start(model={"device": "cpu", "dtype": "bfloat16"}, grpo={"steps": 1}), tmp_path / "run")
    (first,) = RunReader(tmp_path / "run").steps()
    assert first.metrics["kl_all/k3"] == 0
    assert first.facts["sync"]["largest"] == 0


@pytest.mark.slow
def test_two_ranks_that_read_parts_start_from_it_too(start, tmp_path):
    recipe = written(start(grpo={"steps": 2, "prompts_per_step": 2}), tmp_path)
    for ranks in ("1", "2"):
        command = [sys.executable, "-m", "truing", "train", str(recipe), "--ranks", ranks]
        subprocess.run(
            [*command, "--out", str(tmp_path / ranks)], check=True, capture_output=True, timeout=200
        )
    first = [next(iter(RunReader(tmp_path / ranks).steps())) for ranks in ("1", "2")]
    assert first[0].facts["reference"]["digest"] == first[1].facts["reference"]["digest"]
    one, two = (logprobs(restore_policy(tmp_path / ranks).policy) for ranks in ("1", "2"))
    assert (one - two).abs().max() < 1e-5
