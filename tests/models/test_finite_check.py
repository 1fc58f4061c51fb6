"""Weights that are NaN or infinite are told by name before anything is computed with them."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DeepseekV3Config

import truing
from truing.engines.local.merge_adapter import sampler_copy, sync_weights
from truing.errors import ModelError, NonFiniteError, RecordError
from truing.learner import checkpoint
from truing.learner.restore import restore_policy
from truing.models.digest import digest
from truing.models.finite_check import check_finite, saved_tensors
from truing.models.load import load
from truing.models.lora import add_lora, trainable_parameters
from truing.models.reference import make_reference

UP = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def broken(tiny_folder, tmp_path):
    """``broken(nan=3)``: the folder of a tiny model of which one weight holds such numbers."""

    def make(dtype=torch.float32, **numbers):
        folder = shutil.copytree(tiny_folder, tmp_path / "broken")
        weights = load_file(folder / "model.safetensors")
        weights[UP] = weights[UP].to(dtype)
        for value, count in numbers.items():
            weights[UP].view(-1)[: count + 5][-count:] = float(value.replace("minus_", "-").strip("_"))
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return make


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"nan": 3}, "3 NaN of 12,800"),
        ({"inf": 2}, "2 infinite of 12,800"),
        ({"minus_inf": 1}, "1 infinite of 12,800"),
        ({"inf": 6, "nan": 4}, "4 NaN and 2 infinite of 12,800"),
    ],
)
def test_a_model_is_not_loaded(broken, numbers, told):
    with pytest.raises(ModelError, match=rf"1 of \d+ tensors, {UP}: {told}"):
        load(str(broken(**numbers)), device="cpu")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_nor_one_of_another_dtype(broken, dtype):
    with pytest.raises(ModelError, match=r"1 NaN of 12,800"):
        load(str(broken(dtype, nan=1)), device="cpu")


def test_nor_one_whose_numbers_float32_cannot_hold(broken):
    with pytest.raises(ModelError, match=r"1 infinite of 12,800"):
        load(str(broken(torch.float64, _1e300=1)), device="cpu")


@pytest.mark.parametrize("ask", [truing.check, truing.train, truing.api.evaluate, truing.api.preflight])
def test_whatever_is_asked_says_it_first(broken, recipe, ask, tmp_path):
    made = recipe(model={"name": str(broken(nan=1)), "device": "cpu"})
    if ask is truing.api.evaluate:
        (tmp_path / "recipe.toml").write_text(truing.config.to_toml(made))
        made = tmp_path / "recipe.toml"
    with pytest.raises(ModelError, match=UP):
        ask(made)


def test_a_buffer_that_is_saved_counts_and_every_weight_once():
    config = DeepseekV3Config(
        **{"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1},
        **{"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0},
        **{"moe_intermediate_size": 8, "kv_lora_rank": 8, "q_lora_rank": 8, "num_attention_heads": 2},
        **{"qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4, "tie_word_embeddings": True},
    )
    model = AutoModelForCausalLM.from_config(config)
    bias = next(name for name in saved_tensors(model) if name.endswith("e_score_correction_bias"))
    assert "lm_head.weight" not in saved_tensors(model)
    check_finite(saved_tensors(model), "fine", "here")
    model.get_buffer(bias)[1] = torch.nan
    with pytest.raises(ModelError, match=f"{bias}: 1 NaN of 4"):
        check_finite(saved_tensors(model), "broken", "here")


def test_many_are_counted_and_three_named():
    weights = {f"w{i}": torch.tensor([float("nan"), 1.0]) for i in range(9)} | {"none": torch.empty(0)}
    with pytest.raises(ModelError, match=r"9 of 10 tensors, w0: 1 NaN of 2; w1.*; w2.*; and 6 more"):
        check_finite(weights | {}, "broken", "here")


def test_nothing_goes_on_from_a_checkpoint_that_holds_nan(adapter_run):
    folder, policy = adapter_run([1.0])
    newest = folder / "checkpoints" / "sft-000001"
    name = next(iter(trainable_parameters(policy)))
    table = load_file(newest / "trainable.safetensors")
    table[name].view(-1)[:2] = torch.nan
    save_file(table, newest / "trainable.safetensors")
    state = json.loads((newest / "state.json").read_text())
    (newest / "state.json").write_text(json.dumps(state | {"digests": {"trainable": digest(table)}}))
    with pytest.raises(RecordError, match=r"not finite[\s\S]*2 NaN"):
        restore_policy(folder)


def test_moments_of_a_checkpoint_count_too(tmp_path):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight])
    weight.grad = torch.ones(3)
    optimizer.step()
    checkpoint.save(tmp_path, checkpoint.CheckpointState("sft", 1), {"trainable": {"w": weight}}, optimizer)
    newest = tmp_path / "sft-000001"
    moments = load_file(newest / "optimizer.safetensors")
    moments["w/exp_avg_sq"][0] = torch.inf
    save_file(moments, newest / "optimizer.safetensors")
    with pytest.raises(RecordError, match=r"w/exp_avg_sq: 1 infinite of 3"):
        checkpoint.load(newest, {"trainable": {"w": weight}}, optimizer)


@pytest.mark.parametrize("lora", [True, False])
def test_what_is_sent_to_the_sampler_and_what_a_reference_is_made_of(loaded, lora):
    policy = loaded.model
    if lora:
        policy = add_lora(policy, rank=2, alpha=4, dropout=0.0, targets="all-linear", seed=0)
    plain = sampler_copy(policy)
    sync_weights(policy, plain)
    reference = make_reference(policy, syncable=True)
    with torch.no_grad():
        list(trainable_parameters(policy).values())[-1].view(-1)[0] = torch.nan
    with pytest.raises(NonFiniteError, match=r"to sample from are not finite"):
        sync_weights(policy, plain)
    with pytest.raises(NonFiniteError, match=r"reference holds weights that are not finite"):
        reference.sync(trainable_parameters(policy), 0.0)


@torch.no_grad()
def test_an_adapter_that_is_finite_and_merges_to_what_is_not(loaded):
    policy = add_lora(loaded.model, rank=2, alpha=4, dropout=0.0, targets="all-linear", seed=0)
    plain = sampler_copy(policy)
    for parameter in trainable_parameters(policy).values():
        parameter.fill_(1e30)
    with pytest.raises(NonFiniteError, match=r"infinite of"):
        sync_weights(policy, plain)
