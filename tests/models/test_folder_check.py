"""A folder that is no model to train says what it is, and what to do instead."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)

from truing.errors import ModelError
from truing.learner.restore import restore_policy
from truing.models import tiny
from truing.models.load import load

SMALL = {"vocab_size": 259, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1} | {
    "num_attention_heads": 2
}


def refused(folder):
    with pytest.raises(ModelError) as caught:
        load(str(folder), device="cpu")
    return str(caught.value)


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "model")


def edit(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.fixture
def made(tmp_path):
    """``made(model)``: a folder with it and a tokenizer."""

    def make(model):
        model.save_pretrained(tmp_path / "made")
        tiny.byte_tokenizer().save_pretrained(tmp_path / "made")
        return tmp_path / "made"

    return make


def test_an_adapter_names_its_base_and_says_how_to_merge_it(adapter_run, tmp_path):
    from truing.models.export import export

    run, _ = adapter_run([1.0])
    restored = restore_policy(run)
    export(restored.policy, restored.loaded, restored.sampling_params, tmp_path / "adapter", "adapter")
    message = refused(tmp_path / "adapter")
    assert "this folder is an adapter" in message
    assert f"LORA of {tmp_path / 'model'}" in message
    assert "truing export RUN --to FOLDER` without --adapter" in message
    export(restored.policy, restored.loaded, restored.sampling_params, tmp_path / "merged")
    assert load(str(tmp_path / "merged"), device="cpu").model is not None


def test_a_run_its_checkpoints_and_one_of_them_are_exported(adapter_run):
    run, _ = adapter_run([1.0])
    for what, folder in (
        ("a run,", run),
        ("the checkpoints of a run,", run / "checkpoints"),
        ("a checkpoint of a run,", run / "checkpoints" / "sft-000001"),
    ):
        message = refused(folder)
        assert f"this folder is {what} not a model" in message
        assert f"`truing export {run} --to FOLDER`" in message
    sharded = run / "checkpoints" / "sft-000001"
    (sharded / "trainable.safetensors").rename(sharded / "trainable-00001-of-00002.safetensors")
    assert "a checkpoint of a run," in refused(sharded)


def test_a_folder_of_gguf_files_names_the_file(tmp_path):
    (tmp_path / "b.gguf").touch()
    (tmp_path / "a.gguf").touch()
    assert f'model.name = "{tmp_path / "a.gguf"}"' in refused(tmp_path)


def test_a_gguf_file_of_nothing_known_is_refused(tmp_path, cache):
    (tmp_path / "a.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes(40))
    assert "this GGUF file cannot be read" in refused(tmp_path / "a.gguf")


def test_a_folder_without_a_config_says_what_it_holds(tmp_path):
    (tmp_path / "notes.txt").touch()
    message = refused(tmp_path)
    assert "no config.json" in message
    assert "notes.txt" in message


def test_a_config_that_is_no_json(folder):
    (folder / "config.json").write_text("{")
    assert "config.json of this model folder cannot be read" in refused(folder)


def test_a_shard_that_is_absent_is_named(folder):
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    places = {}
    for i, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-{i:05d}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert load(str(folder), device="cpu").model is not None
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "1 of 2 missing, among them model-00002-of-00002.safetensors" in refused(folder)


def test_a_classifier_is_no_language_model_though_its_embedding_is_tied(made):
    message = refused(made(LlamaForSequenceClassification(LlamaConfig(**SMALL, tie_word_embeddings=True))))
    assert "another task" in message
    assert "LlamaForSequenceClassification" in message


def test_an_encoder_is_no_language_model(made):
    message = refused(made(BertForMaskedLM(BertConfig(**SMALL))))
    assert "BertForMaskedLM" in message


def test_an_encoder_and_decoder_are_no_language_model(made):
    message = refused(made(T5ForConditionalGeneration(T5Config(vocab_size=259, d_model=16, num_layers=1))))
    assert "no causal language model of this type" in message
    assert ": t5" in message


def test_an_unknown_type_and_code_of_its_own_are_refused(folder):
    edit(folder / "config.json", model_type="of_tomorrow", auto_map={"AutoConfig": "code.Config"})
    assert "of_tomorrow" in refused(folder)


def test_weights_of_another_shape_are_named_with_both(folder):
    edit(folder / "config.json", tie_word_embeddings=False)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = torch.zeros(300, tiny.HIDDEN)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    message = refused(folder)
    assert "0 missing, 1 of another shape" in message
    assert f"lm_head.weight (300, {tiny.HIDDEN}), not (259, {tiny.HIDDEN})" in message


def test_an_output_layer_that_was_not_saved_is_never_made_up(folder):
    edit(folder / "config.json", tie_word_embeddings=False)
    assert "1 missing, 0 of another shape, among them lm_head.weight" in refused(folder)


def test_quantised_weights_say_why_they_cannot_be_read(folder):
    edit(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    assert "not quantized" in refused(folder)


@pytest.mark.parametrize("key", ["num_hidden_layers", "n_layer", "num_local_experts", "num_attention_heads"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_config_that_counts_ten_million_parts_is_refused_at_once(folder, key, inside):
    edit(folder / "config.json", **({"text_config": {key: 10**7}} if inside else {key: 10**7}))
    assert f"{key} = 10000000" in refused(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", ["llama"]),
        ("model_type", 3),
        ("architectures", [-1]),
        ("architectures", "LlamaForCausalLM"),
    ],
)
def test_a_kind_of_model_that_is_no_text_is_refused(folder, key, value):
    edit(folder / "config.json", **{key: value})
    text = refused(folder)
    assert "config.json describes no model" in text
    assert f"{key} = {value}" in text


@pytest.mark.parametrize("weight_map", [["model.safetensors"], {"lm_head.weight": 1}, "model.safetensors"])
def test_an_index_that_names_no_files_is_refused(folder, weight_map):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    text = refused(folder)
    assert "model.safetensors.index.json describes no model" in text
    assert "weight_map = " in text
