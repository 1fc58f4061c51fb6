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
