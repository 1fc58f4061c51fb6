"""Loading: what a run is told of its model, and each way in which a folder can be unusable."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedConfig

from truing.errors import ModelError
from truing.models import load as module
from truing.models import tiny
from truing.models.digest import digest
from truing.models.load import load
from truing.models.resolve import resolve_model


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy of tiny to be damaged."""
    return shutil.copytree(tiny_folder, tmp_path / "model")


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_facts_of_a_run_are_reported(tiny_folder):
    loaded = load(str(tiny_folder), device="cpu")
    assert loaded.stop_ids == (257,)
    assert loaded.pad_id == 258
    assert loaded.context_length == tiny.CONTEXT
    assert loaded.path == tiny_folder
    assert loaded.digest == digest(tiny.tiny_model().state_dict())


def test_weights_are_fp32_tied_and_in_evaluation_mode(tiny_folder):
    model = load(str(tiny_folder), device="cpu").model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert not model.training
    assert model.config._attn_implementation == "sdpa"


def test_half_precision_files_become_fp32(folder):
    half = {name: weight.bfloat16() for name, weight in load_file(folder / "model.safetensors").items()}
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    edit_json(folder / "config.json", dtype="bfloat16")
    loaded = load(str(folder), device="cpu")
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}


def test_a_given_chat_template_replaces_the_models_own(folder, tmp_path):
    other = tmp_path / "other.jinja"
    other.write_text("{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<|pad|>{% endfor %}")
    loaded = load(str(folder), device="cpu", chat_template=str(other))
    assert loaded.stop_ids == (258, 257)
    assert (
        loaded.tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)
        == "[user]a<|pad|>"
    )


def test_no_pad_token_means_the_stop_id_fills_rows(folder):
    edit_json(folder / "tokenizer_config.json", pad_token=None)
    assert load(str(folder), device="cpu").pad_id == 257


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tinny", "did you mean 'tiny'"),
        ("./absent", "no model has this name or path"),
        ("/absent/model", "no model has this name or path"),
        ("absent.gguf", "no model has this name or path"),
    ],
)
def test_names_that_lead_nowhere(name, says):
    with pytest.raises(ModelError, match=says):
        resolve_model(name)


def test_a_revision_of_what_has_none_is_refused(tiny_folder):
    with pytest.raises(ModelError, match="only models on the hub"):
        resolve_model(str(tiny_folder), "v2")


def test_cuda_where_there_is_none(tiny_folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="no CUDA device"):
        load(str(tiny_folder), device="cuda")


def test_no_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match="no readable tokenizer"):
        load(str(folder), device="cpu")


def test_no_chat_template(folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match=r'model\.chat_template = "path'):
        load(str(folder), device="cpu")


def test_a_chat_template_that_is_not_there(tiny_folder):
    with pytest.raises(ModelError, match=r"model\.chat_template cannot be read"):
        load(str(tiny_folder), device="cpu", chat_template="absent.jinja")


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        load(str(folder), device="cpu")


def test_cut_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be read"):
        load(str(folder), device="cpu")


def test_an_absent_weight_is_never_made_up(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 missing.*layers\.1\.mlp\.up_proj"):
        load(str(folder), device="cpu")


def test_ids_beyond_the_embedding(folder):
    tokenizer = tiny.byte_tokenizer()
    tokenizer.add_tokens(["<tool>"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match=r"id 259 \('<tool>'\)"):
        load(str(folder), device="cpu")


def test_no_context_length(tmp_path):
    with pytest.raises(ModelError, match="max_position_embeddings"):
        module._context_length(PreTrainedConfig(), tmp_path)


def test_the_embedding_of_the_pad_is_trained_where_it_is_a_word(folder):
    # As in SmolLM2, whose pad is the token that ends a turn.
    edit_json(folder / "config.json", pad_token_id=257)
    model = load(str(folder), device="cpu").model
    embedding = model.get_input_embeddings()
    embedding(torch.tensor([257])).sum().backward()
    assert embedding.weight.grad[257].tolist() == [1.0] * tiny.HIDDEN
