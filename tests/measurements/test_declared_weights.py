"""The weights that a recipe trains, computed a second time; and weights beside the model's files."""

import pytest
import torch
from architectures import tiny_config, tiny_model
from peft_adapters import save_adapter
from transformers import AutoModelForCausalLM

from truing.doctor.oracle.trained_weights import adapter_shapes, differences
from truing.doctor.rules.opt018 import RULE, example, rounded
from truing.measurements.declared_weights import (
    declared_shapes,
    difference_of,
    differences_to_file,
    plain_name,
)
from truing.models.lora import add_lora, trainable_parameters

TYPES = ("llama", "gpt2", "gemma3_text", "qwen3_moe", "phi3", "opt", "mamba", "gpt_oss")

LAYERS = {"a.q_proj": (8, 4), "a.up": (8, 6), "head": (8, 99)}


def shapes(policy):
    return {plain_name(name): tuple(each.shape) for name, each in trainable_parameters(policy).items()}


@pytest.fixture
def saved(tmp_path):
    """A model of any type in a folder, as transformers writes it."""

    def save(model_type):
        folder = tmp_path / model_type
        tiny_model(tiny_config(model_type)).save_pretrained(folder)
        return folder

    return save


@pytest.mark.parametrize(
    ("targets", "paths"),
    [
        ("all-linear", ["a.q_proj", "a.up"]),
        (["q_proj"], ["a.q_proj"]),
        (["q_proj", "head"], ["a.q_proj", "head"]),
        (["proj"], []),
        (r"a\..*", ["a.q_proj", "a.up"]),
        ("q_proj", []),  # a whole path, not its end
    ],
)
def test_an_adapter_has_two_weights_for_each_target(targets, paths):
    found = adapter_shapes(LAYERS, "head", 2, targets)
    assert [*found] == [f"{path}.lora_{part}.weight" for path in paths for part in "AB"]
    if "a.up.lora_A.weight" in found:
        assert (found["a.up.lora_A.weight"], found["a.up.lora_B.weight"]) == ((2, 8), (6, 2))


@pytest.mark.parametrize(
    ("model_type", "targets"),
    [
        ("llama", "all-linear"),
        ("llama", ["q_proj", "mlp.up_proj"]),
        ("llama", r".*(q|k)_proj"),
        ("gpt2", "all-linear"),  # which holds weights [in, out]
        ("gpt2", ["c_attn"]),
        ("gemma3_text", "all-linear"),
        ("phi3", "all-linear"),
        ("opt", "all-linear"),
        ("qwen3_moe", ["q_proj", "o_proj"]),
    ],
)
def test_an_adapter_of_any_architecture_is_as_declared(model_type, targets, saved, recipe):
    folder, model = saved(model_type), tiny_model(tiny_config(model_type))
    policy = add_lora(model, rank=4, alpha=8.0, dropout=0.0, targets=targets, seed=0)
    declared = declared_shapes(recipe(lora={"rank": 4, "targets": targets}), folder)
    assert declared
    assert differences(declared, shapes(policy)) == {}


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_as_transformers_reads_them_are_those_of_the_files(model_type, dtype, saved, recipe):
    folder = saved(model_type)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    assert differences(declared_shapes(recipe(), folder), shapes(model)) == {}
    own = {name: weight.detach() for name, weight in model.named_parameters()}
    assert dict(differences_to_file(own, folder / "model.safetensors", dtype)) == {}
    name, weight = next((name, each) for name, each in own.items() if "embed" in name or "wte" in name)
    weight[3, 0] += 1
    assert [*dict(differences_to_file(own, folder / "model.safetensors", dtype))] == [name]


def test_a_saved_adapter_has_the_weights_of_its_file(tmp_path, saved, recipe):
    folder = saved("llama")
    policy = save_adapter(folder, tmp_path / "adapter")
    declared = declared_shapes(recipe(lora={"adapter": str(tmp_path / "adapter")}), folder)
    trained = {plain_name(name): tuple(x.shape) for name, x in policy.named_parameters() if "lora_" in name}
    assert declared == trained


def test_each_difference_is_told():
    declared, trained = {"a": (2, 2), "b": (3,), "c": (1,)}, {"a": (2, 4), "b": (3,), "d": (5,)}
    assert differences(declared, trained) == {
        "c": "is not trained",
        "d": "is trained, which is not declared",
        "a": "has the shape [2, 4], not [2, 2]",
    }


def test_a_weight_is_the_stored_one_in_the_declared_dtype():
    stored = torch.tensor([1.0, 1 / 3, 2.0])
    assert difference_of(stored, stored, torch.float32) == ""
    assert difference_of(stored.bfloat16(), stored, torch.bfloat16) == ""
    assert difference_of(stored, stored, torch.bfloat16) == ""  # a module that keeps float32
    assert difference_of(stored.bfloat16(), stored, torch.float32) == "is in bfloat16, not float32"
    rounded = difference_of(stored.bfloat16().float(), stored, torch.float32)
    assert rounded == "differs in 1 of 3 numbers, by up to 0.00065"


def test_both_differences_are_claimed():
    (trained,), (loaded,) = (list(RULE.judge(step())) for step in (example, rounded))
    assert trained.what == "6 weights that train are not as declared"
    assert loaded.what == "1 weight before the first step is not as declared"
