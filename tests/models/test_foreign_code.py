"""A model folder is data: its code is not run, its pickles are not read, and it names no file outside."""

import ast
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import truing
from truing.config import load_recipe
from truing.errors import ModelError
from truing.learner.memory_prediction import predict_memory
from truing.models.load import load

SOURCES = sorted(Path(truing.__file__).parent.rglob("*.py"))
LOADERS = {"from_pretrained", "from_config"}
CODE = "from pathlib import Path\nPath('{marker}').write_text('ran')\n"


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "model")


@pytest.fixture
def marker(folder, tmp_path):
    """A file that the code of the model folder would write."""
    (folder / "own.py").write_text(CODE.format(marker=tmp_path / "marker"))
    return tmp_path / "marker"


def edit(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def predict(folder):
    return predict_memory(load_recipe("tiny", [f'model.name="{folder}"']))


ENTRIES = {"load": lambda folder: load(str(folder), device="cpu"), "predict": predict}


def test_every_loader_of_transformers_is_called_without_trusting_remote_code():
    calls = [
        (path.name, node.lineno, {key.arg: ast.unparse(key.value) for key in node.keywords})
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOADERS
    ]
    assert len(calls) > 5
    assert [call for call in calls if call[2].get("trust_remote_code") != "False"] == []


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("key", ["AutoConfig", "AutoModelForCausalLM"])
@pytest.mark.parametrize("kind", ["llama", "own"])
def test_a_model_with_code_of_its_own_is_refused(folder, marker, entry, key, kind):
    edit(folder / "config.json", model_type=kind, auto_map={key: "own.OwnClass"})
    with pytest.raises(ModelError, match="code of its own") as caught:
        ENTRIES[entry](folder)
    assert str(folder / "own.py") in str(caught.value)
    assert not marker.exists()


def test_a_tokenizer_with_code_of_its_own_is_refused(folder, marker):
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.OwnTokenizer", None]})
    with pytest.raises(ModelError, match="code of its own") as caught:
        load(str(folder), device="cpu")
    assert str(folder / "own.py") in str(caught.value)
    assert not marker.exists()


def test_code_that_transformers_has_as_well_is_not_run(folder, marker):
    edit(folder / "config.json", auto_map={"AutoConfig": "own.LlamaConfig"})
    assert load(str(folder), device="cpu").context_length
    assert not marker.exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_refused(folder, name):
    torch.save(load_file(folder / "model.safetensors"), folder / name)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="pickle") as caught:
        load(str(folder), device="cpu")
    assert str(folder / name) in str(caught.value)
    assert "safetensors" in caught.value.remedy


def test_pickled_weights_beside_safetensors_of_another_name_are_not_read(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(str(folder), device="cpu")


@pytest.mark.parametrize("outside", ["../other/model.safetensors", "{parent}/other/model.safetensors", ".."])
def test_an_index_names_no_file_outside_the_folder(folder, outside):
    other = folder.parent / "other"
    other.mkdir()
    (folder / "model.safetensors").rename(other / "model.safetensors")
    name = outside.format(parent=folder.parent)
    weights = dict.fromkeys(load_file(other / "model.safetensors"), name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights, "metadata": {}}))
    with pytest.raises(ModelError, match="outside") as caught:
        load(str(folder), device="cpu")
    assert repr(name) in str(caught.value)


FILES = ["chat_template.jinja", "config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_a_link_out_of_the_folder_is_refused(folder, tmp_path, entry, name):
    secret = tmp_path / "secret"
    (folder / name).rename(secret) if (folder / name).exists() else secret.write_text("{{ a secret }}")
    (folder / name).symlink_to(secret)
    with pytest.raises(ModelError, match="leads out of it") as error:
        ENTRIES[entry](folder)
    assert "a secret" not in str(error.value)


def test_a_template_behind_a_linked_folder_is_refused(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder / "additional_chat_templates").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="leads out of it"):
        load(str(folder), device="cpu")


def test_links_within_a_cache_and_within_a_folder_are_followed(folder, tmp_path):
    snapshot, blobs = tmp_path / "models--a--b/snapshots/123", tmp_path / "models--a--b/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    (tmp_path / "named").symlink_to(snapshot)
    assert load(str(tmp_path / "named"), device="cpu").context_length
    outside = tmp_path / "outside"
    (blobs / "0").rename(outside)
    (blobs / "0").symlink_to(outside)
    with pytest.raises(ModelError, match="leads out of it"):
        load(str(tmp_path / "named"), device="cpu")


@pytest.mark.parametrize("eos", [-1, "x", 10**6, True, [1, -1], [[1]], 2**70, 1.5], ids=repr)
def test_a_stop_id_outside_the_vocabulary_is_refused(folder, eos):
    edit(folder / "generation_config.json", eos_token_id=eos)
    with pytest.raises(ModelError):
        load(str(folder), device="cpu")


def test_weights_of_more_layers_than_config_counts_are_refused(folder):
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    edit(folder / "config.json", num_hidden_layers=layers - 1)
    with pytest.raises(ModelError, match="the weights have more layers than"):
        load(str(folder), device="cpu")
