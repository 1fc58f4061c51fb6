"""An adapter that peft saved is the start of a policy: the same function, or an error that says why not."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel
from peft.utils.other import get_pattern_key
from peft_adapters import edit, logprobs, plain_model, read_with_peft, save_adapter
from safetensors.torch import load_file, save_file

from truing.errors import ModelError, RecipeError
from truing.models import tiny
from truing.models.adapter_config import declared_scale, largest_rank, read_config
from truing.models.adapter_patterns import without_patterns
from truing.models.digest import base_digest
from truing.models.export import export
from truing.models.load import load
from truing.models.lora import adapted_layers, adapter_is_zero, trainable_parameters
from truing.models.saved_adapter import add_saved_adapter, read_adapter
from truing.types.sampling_params import SamplingParams

PARAMS = SamplingParams(stop_ids=(257,))
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

KINDS = {
    "names": {},
    "all-linear": {"target_modules": "all-linear"},
    "a pattern": {"target_modules": r".*layers\.0\..*(q|v)_proj"},
    "one layer": {"layers_to_transform": [1]},
    "layers left out": {"exclude_modules": ["q_proj"]},
    "rank-stabilised": {"use_rslora": True},
    "ranks and scales by layer": {
        "rank_pattern": {"q_proj": 2},
        "alpha_pattern": {r"layers.1.mlp.down_proj": 3},
    },
    "initialized by data": {"init_lora_weights": "gaussian"},
}


def start(loaded, folder, **changes):
    return add_saved_adapter(loaded, read_adapter(folder), **{"dropout": 0.0} | changes)


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """An adapter of rank 4 and alpha 8 on three layers of a block."""
    save_adapter(tiny_folder, tmp_path / "adapter")
    return tmp_path / "adapter"


def refused(loaded, folder, error=ModelError, **changes):
    with pytest.raises(error) as caught:
        start(loaded, folder, **changes)
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_of_peft_computes_the_same_and_is_saved_as_the_same(kind, loaded, tiny_folder, tmp_path):
    expected = logprobs(save_adapter(tiny_folder, tmp_path / "adapter", **KINDS[kind]))
    assert (expected - logprobs(plain_model(tiny_folder))).abs().max() > 0.01
    policy = start(loaded, tmp_path / "adapter").eval()
    assert (logprobs(policy) - expected).abs().max() < 2e-6
    export(policy, loaded, PARAMS, tmp_path / "again", "adapter")
    assert torch.equal(logprobs(read_with_peft(tiny_folder, tmp_path / "again")), expected)
    export(policy, loaded, PARAMS, tmp_path / "merged")
    assert (logprobs(plain_model(tmp_path / "merged")) - expected).abs().max() < 5e-6


def test_it_is_trained_in_float32_with_the_dropout_of_the_run(loaded, tiny_folder, tmp_path):
    save_adapter(tiny_folder, tmp_path / "adapter", lora_dropout=0.5)
    halved = load_file(tmp_path / "adapter" / WEIGHTS)
    save_file({name: weight.bfloat16() for name, weight in halved.items()}, tmp_path / "adapter" / WEIGHTS)
    policy = start(loaded, tmp_path / "adapter")
    trained = trainable_parameters(policy)
    assert {weight.dtype for weight in trained.values()} == {torch.float32}
    assert all(".lora_" in name for name in trained)
    assert all(
        torch.equal(weight, halved[name.replace(".default.", ".")].bfloat16().float())
        for name, weight in trained.items()
    )
    assert torch.equal(logprobs(policy.train()), logprobs(policy))  # without the dropout of its config
    assert not adapter_is_zero(policy)


def test_scales_are_those_of_the_config(tiny_folder, tmp_path):
    save_adapter(tiny_folder, tmp_path / "a", use_rslora=True)
    save_adapter(tiny_folder, tmp_path / "b", rank_pattern={"q_proj": 16}, alpha_pattern={"layers.1.*": 2})
    stabilised, by_layer = read_config(tmp_path / "a"), read_config(tmp_path / "b")
    assert declared_scale(stabilised, "model.layers.0.self_attn.q_proj", 4) == 4.0  # 8 / √4
    assert declared_scale(by_layer, "model.layers.0.self_attn.q_proj", 16) == 0.5
    assert declared_scale(by_layer, "model.layers.1.self_attn.v_proj", 4) == 0.5
    assert (largest_rank(stabilised), largest_rank(by_layer)) == (4, 16)


def test_a_scale_of_peft_that_is_not_the_configs_is_an_error(loaded, folder, monkeypatch):
    monkeypatch.setattr("truing.models.saved_adapter.declared_scale", lambda *_: 3.0)
    message = refused(loaded, folder)
    assert "otherwise than its config says" in message
    assert "expected: 3.0" in message


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"use_dora": True}, "use_dora True"),
        ({"bias": "all"}, "bias 'all'"),
        ({"lora_bias": True}, "lora_bias True"),
        ({"modules_to_save": ["embed_tokens"]}, "modules_to_save ['embed_tokens']"),
        ({"trainable_token_indices": [3]}, "trainable_token_indices [3]"),
        ({"target_parameters": ["experts.down_proj"]}, "target_parameters"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
        ({"from_the_future": 2, "peft_version": "9.0"}, "from_the_future 2, saved by peft 9.0"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights 'pissa_niter_4'"),
        ({"init_lora_weights": "olora"}, "path_initial_model_for_weight_conversion"),
        ({"peft_type": "IA3"}, "peft_type IA3"),
        ({"task_type": "SEQ_CLS"}, "task_type SEQ_CLS"),
        ({"r": None}, "without r\n"),
        ({"target_modules": ["query"]}, "query"),
        ({"target_modules": ".*q_proj", "layers_to_transform": [1]}, "layers_to_transform"),
    ],
)
def test_an_adapter_that_is_more_than_a_product_is_refused_by_name(changes, named, loaded, folder):
    edit(folder / CONFIG, **changes)
    message = refused(loaded, folder)
    assert named in message
    assert str(folder) in message
    assert "remedy" in message


def test_keys_that_are_off_or_tell_nothing_are_read_over(loaded, folder):
    edit(
        folder / CONFIG, from_the_future=False, another=None, eva_config={"rho": 2.0}, auto_mapping={"a": "b"}
    )
    assert (read_config(folder).r, read_config(folder).lora_alpha) == (4, 8)
    assert len(trainable_parameters(start(loaded, folder))) == 12


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("target", ["embed_tokens", "lm_head"])
def test_an_adapter_on_an_embedding_or_a_tied_head_is_refused(target, loaded, tiny_folder, tmp_path):
    save_adapter(tiny_folder, tmp_path / "adapter", target_modules=["q_proj", target])
    message = refused(loaded, tmp_path / "adapter")
    assert "the adapter changes an embedding" in message
    assert "tie_word_embeddings = False" in message


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("target", ["embed_tokens", "lm_head"])
def test_an_adapter_on_a_tied_weight_is_merged_as_its_error_advises(target, tiny_folder, tmp_path):
    policy = save_adapter(tiny_folder, tmp_path / "adapter", target_modules=["q_proj", target])
    model = plain_model(tiny_folder)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload().save_pretrained(tmp_path / "m")
    torch.testing.assert_close(logprobs(plain_model(tmp_path / "m")), logprobs(policy), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("r", "4"),
        ("r", 4.0),
        ("r", 0),
        ("lora_alpha", "8"),
        ("lora_alpha", 0),
        ("lora_alpha", float("nan")),
        ("rank_pattern", {"q_proj": "4"}),
        ("rank_pattern", [1]),
        ("alpha_pattern", {"q_proj": "4"}),
        ("target_modules", 3),
        ("exclude_modules", [1]),
    ],
)
def test_a_value_that_defines_no_adapter_is_refused(loaded, folder, key, value):
    edit(folder / CONFIG, **{key: value})
    message = refused(loaded, folder)
    assert "a value that defines no adapter" in message
    assert f"{key} {value!r}" in message


def test_a_base_file_that_is_no_table_is_refused(loaded, folder):
    (folder / "base.json").write_text("[1]")
    assert "the files of this adapter cannot be read" in refused(loaded, folder)


def test_layers_that_the_model_lacks_are_not_to_be_merged(loaded, folder):
    edit(folder / CONFIG, target_modules=["no_such_proj"])
    message = refused(loaded, folder)
    assert "set model.name to the model of this adapter" in message
    assert "merge_and_unload" not in message


def test_weights_that_do_not_fit_are_named(loaded, folder):
    file = folder / WEIGHTS
    weights = load_file(file)
    first, second, third = sorted(weights)[:3]
    changed = {name: weight for name, weight in weights.items() if name != first}
    changed |= {second: weights[second][:2].clone(), "embed_tokens.weight": torch.ones(2)}
    save_file(changed, file)
    message = refused(loaded, folder)
    assert f"1 missing: {first}" in message
    assert "1 not of this adapter: embed_tokens.weight" in message
    assert f"1 of another shape: {second} (2, " in message
    assert third not in message
    weights[third][0, 0] = torch.nan
    save_file(weights, file)
    message = refused(loaded, folder)
    assert "not finite" in message
    assert f"{third}: 1 NaN" in message


def test_a_model_of_another_width_is_refused_by_its_tensors(loaded, folder):
    edit(folder / CONFIG, r=2)
    assert "12 of another shape" in refused(loaded, folder)


def test_files_that_are_not_an_adapter(loaded, folder, tmp_path, adapter_run):
    (folder / WEIGHTS).write_bytes(b"broken")
    assert "cannot be read" in refused(loaded, folder)
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    assert "is a pickle" in refused(loaded, folder)
    (folder / CONFIG).write_text("[1]")
    assert "not the folder of an adapter" in refused(loaded, folder)
    message = refused(loaded, tmp_path / "nowhere")
    assert "lora.adapter names no folder" in message
    assert "a run that resumes needs the folder that it started from" in message
    run, _ = adapter_run([1.0])
    message = refused(loaded, run)
    assert "this folder is a run, not an adapter" in message
    assert f"`truing export {run} --adapter --to FOLDER`" in message
    assert "then lora.adapter = FOLDER" in message


def test_a_run_that_trains_all_weights_has_no_adapter_to_export(loaded, adapter_run):
    run, _ = adapter_run([1.0])
    facts = json.loads((run / "run.json").read_text())
    facts["recipe"]["lora"] = False
    (run / "run.json").write_text(json.dumps(facts))
    for folder in (run, run / "checkpoints"):
        message = refused(loaded, folder)
        assert (
            f"it trains all weights: `truing export {run} --to FOLDER`; then model.name = FOLDER" in message
        )
        assert "--adapter" not in message


def test_another_base_is_known_by_its_digest_or_else_by_its_name(loaded, folder, tiny_folder, tmp_path):
    policy = start(loaded, folder)
    exported = tmp_path / "exported"
    export(policy, loaded, PARAMS, exported, "adapter")
    assert json.loads((exported / "base.json").read_text()) == {
        "digest": base_digest(policy),
        "quantization": None,
    }

    moved = shutil.copytree(tiny_folder, tmp_path / "moved")
    message = refused(load(str(moved), device="cpu"), folder)
    assert f"got: model.name = '{moved}'" in message
    assert f"expected: '{tiny_folder}', of {folder / CONFIG}" in message
    start(load(str(moved), device="cpu"), exported)  # the same weights under another name

    tiny.build(tmp_path / "other", seed=1)
    edit(exported / CONFIG, base_model_name_or_path=str(tmp_path / "other"))
    message = refused(load(str(tmp_path / "other"), device="cpu"), exported)
    assert "trained on other weights than model.name" in message
    assert f"expected: digest {base_digest(policy)}" in message


def test_a_base_that_is_not_named_or_is_on_the_hub(loaded, folder):
    edit(folder / CONFIG, base_model_name_or_path="owner/model")
    assert "'owner/model'" in refused(loaded, folder)
    hub = replace(loaded, name="owner/model")
    assert start(hub, folder) is not None


def test_a_base_that_is_not_named_is_taken(loaded, folder):
    edit(folder / CONFIG, base_model_name_or_path=None)
    assert start(loaded, folder) is not None


def test_the_digest_of_a_base_is_that_of_its_weights_in_any_dtype(loaded, folder, tiny_folder):
    plain, halved = base_digest(loaded.model), load(str(tiny_folder), device="cpu", dtype=torch.bfloat16)
    assert base_digest(halved.model) == plain
    policy = start(loaded, folder)
    assert base_digest(policy) == plain
    with torch.no_grad():
        adapted_layers(policy)["model.layers.1.self_attn.q_proj"].get_base_layer().weight[0, 0] += 1
    assert base_digest(policy) != plain


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        ({"rank": 8}, ("lora.rank", "got: 8", "expected: 4")),
        ({"alpha": 16.0}, ("lora.alpha", "got: 16.0", "expected: 8")),
        ({"targets": ["q_proj"]}, ("lora.targets", "got: 2 layers; 4 are in one alone", "the 6 layers")),
        ({"targets": "all-linear"}, ("lora.targets", "got: 14 layers; 8 are in one alone", "the 6 layers")),
        ({"targets": ".*up_proj"}, ("lora.targets", "got: 2 layers; 8 are in one alone", "the 6 layers")),
    ],
)
def test_a_recipe_that_declares_another_adapter_is_refused(declared, named, loaded, folder):
    message = refused(loaded, folder, RecipeError, **declared)
    assert all(part in message for part in named)


@pytest.mark.parametrize("targets", ["all-linear", None])
def test_a_recipe_may_declare_the_same_adapter(targets, loaded, tiny_folder, tmp_path):
    names = {"target_modules": targets} if targets else {}
    expected = logprobs(save_adapter(tiny_folder, tmp_path / "adapter", **names))
    declared = targets or ["v_proj", "q_proj", "down_proj"]
    policy = start(loaded, tmp_path / "adapter", rank=4, alpha=8.0, targets=declared)
    assert (logprobs(policy.eval()) - expected).abs().max() < 2e-6


ENDLESS = r"([a-z_.0-9]+)+X"
"""A pattern whose search in the name of a layer takes Python's ``re`` longer than anybody waits."""


@pytest.mark.parametrize(
    "changes",
    [
        {"exclude_modules": ENDLESS},
        {"rank_pattern": {ENDLESS: 16}},
        {"alpha_pattern": {ENDLESS: 16, "q_proj": 8}},
    ],
)
def test_a_pattern_without_end_matches_nothing(changes, loaded, folder):
    edit(folder / "adapter_config.json", **changes)
    assert start(loaded, folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"target_modules": ENDLESS},
        {"target_modules": "(q_proj"},
        {"layers_pattern": ENDLESS, "layers_to_transform": [0]},
    ],
)
def test_a_pattern_that_names_no_layer_is_refused(changes, loaded, folder):
    edit(folder / "adapter_config.json", **changes)
    refused(loaded, folder)


def test_the_first_pattern_of_a_layer_counts(loaded):
    """As in peft."""
    config = LoraConfig(
        target_modules=r".*[01]\.mlp\.down_proj", alpha_pattern={r"0.*_proj": 3, r"layers.0.*": 5, r".*": 7}
    )
    named = without_patterns(config, loaded.model, Path())
    assert named.target_modules == {f"model.layers.{layer}.mlp.down_proj" for layer in (0, 1)}
    names = [name for name, _ in loaded.model.named_modules() if name]
    expected = {name: config.alpha_pattern[get_pattern_key(config.alpha_pattern, name)] for name in names}
    assert named.alpha_pattern == expected
    assert set(expected.values()) == {3, 5, 7}
