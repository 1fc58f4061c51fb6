"""Adapters: no change at the start, seeded by themselves; a reference comes and goes without a trace."""

import json

import pytest
import torch
from architectures import tiny_config, tiny_model

from truing.errors import ModelError
from truing.models.digest import digest
from truing.models.load import load
from truing.models.lora import (
    adapted_layers,
    add_lora,
    add_reference,
    trainable_parameters,
    training_mode,
    use_reference,
)

IDS = torch.tensor([[104, 101, 108, 108, 111]])


def adapted(model, **changes):
    arguments = {"rank": 4, "alpha": 8.0, "dropout": 0.0, "targets": "all-linear", "seed": 3} | changes
    return add_lora(model, **arguments)


@torch.no_grad()
def perturb(policy):
    for parameter in trainable_parameters(policy).values():
        parameter.add_(torch.randn_like(parameter), alpha=0.1)


@torch.no_grad()
def logits(model):
    return model(input_ids=IDS).logits


def test_a_fresh_adapter_changes_nothing_and_alone_is_trained(loaded):
    before = logits(loaded.model)
    policy = adapted(loaded.model)
    assert torch.equal(logits(policy), before)
    trained = trainable_parameters(policy)
    # 2 layers × 7 linear layers × (A, B); the output head is left alone.
    assert len(trained) == 28
    assert all("lora_" in name for name in trained)
    assert {p.dtype for p in trained.values()} == {torch.float32}


def test_full_training_counts_tied_weights_once(loaded):
    trained = trainable_parameters(loaded.model)
    assert "model.embed_tokens.weight" in trained
    assert "lm_head.weight" not in trained


def test_initial_weights_depend_on_the_seed_alone(tiny_folder):
    def fresh(seed, global_seed):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        policy = adapted(load(str(tiny_folder), device="cpu").model, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        return digest(trainable_parameters(policy))

    assert fresh(3, 0) == fresh(3, 1)
    assert fresh(4, 0) != fresh(3, 0)


def test_dropout_acts_in_training_mode_only(loaded):
    policy = adapted(loaded.model, dropout=0.5)
    perturb(policy)
    policy.train()
    assert not torch.equal(logits(policy), logits(policy))
    policy.eval()
    assert torch.equal(logits(policy), logits(policy))


def test_without_a_reference_adapter_the_base_is_the_reference(loaded):
    base = logits(loaded.model)
    policy = adapted(loaded.model)
    perturb(policy)
    with use_reference(policy):
        assert torch.equal(logits(policy), base)
    assert not torch.equal(logits(policy), base)


def test_the_reference_stays_while_the_policy_moves_and_is_replaced_when_asked(loaded):
    policy = adapted(loaded.model)
    for _ in range(2):  # two stages, each with its own start
        perturb(policy)
        start = logits(policy)
        add_reference(policy)
        perturb(policy)
        with use_reference(policy):
            assert torch.equal(logits(policy), start)
        assert not torch.equal(logits(policy), start)


def test_a_reference_is_copied_exactly_and_draws_no_random_numbers(loaded):
    policy = adapted(loaded.model)
    perturb(policy)
    before = torch.get_rng_state()
    add_reference(policy)
    assert torch.equal(torch.get_rng_state(), before)
    state = policy.state_dict()
    copies = [name for name in state if ".reference." in name]
    assert len(copies) == 28
    assert all(torch.equal(state[name], state[name.replace(".reference.", ".default.")]) for name in copies)


@pytest.mark.parametrize("with_adapter", [True, False])
def test_flags_mode_and_adapter_are_restored_even_after_an_error(loaded, with_adapter):
    policy = adapted(loaded.model).train()
    if with_adapter:
        add_reference(policy)
    frozen = next(iter(trainable_parameters(policy)))
    policy.get_parameter(frozen).requires_grad_(False)  # something that peft's own restoring would switch on
    flags = {name: p.requires_grad for name, p in policy.named_parameters()}
    perturb(policy)
    live = logits(policy)
    with use_reference(policy):
        assert not policy.training
        assert not torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), use_reference(policy):
        _ = 1 / 0
    assert {name: p.requires_grad for name, p in policy.named_parameters()} == flags
    assert policy.training
    assert policy.active_adapter == "default"
    assert torch.equal(logits(policy), live)


def test_layers_that_are_not_there_are_named(loaded):
    with pytest.raises(ModelError, match="q_proj") as caught:
        adapted(loaded.model, targets=["query"])
    assert "'query'" in str(caught.value)


@pytest.mark.parametrize(
    ("targets", "named"),
    [
        (["q_proj", "v_poj"], ("'v_poj'", "did you mean 'v_proj'?")),
        (["self_attn.q_proj", "mlp.q_proj"], ("'mlp.q_proj'",)),
        (["q_proj", ".*mlp.*up_proj"], ("'.*mlp.*up_proj'", "alone, as a text")),
        (["q_proj", "proj"], ("'proj'",)),
        (["q_proj", "gate_pro", "Down_proj"], ("'gate_pro', 'Down_proj'", "'gate_proj'? did you mean 'down")),
        (["q_proj", ""], ("''",)),
        (r".*\.(query|value)", ("query", "q_proj")),
    ],
)
def test_a_target_that_matches_nothing_is_an_error_beside_one_that_matches(loaded, targets, named):
    with pytest.raises(ModelError) as caught:
        adapted(loaded.model, targets=targets)
    assert all(part in str(caught.value) for part in named)


@pytest.mark.parametrize(
    "targets", [["q_proj", "self_attn.v_proj"], ["model.layers.0.mlp.up_proj"], r".*\.(q|v)_proj"]
)
def test_names_ends_of_paths_and_patterns_are_targets(loaded, targets):
    assert adapted_layers(adapted(loaded.model, targets=targets))


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_an_adapter_on_a_tied_head_is_refused(loaded):
    with pytest.raises(ModelError, match="tied to the output head"):
        adapted(loaded.model, targets=["lm_head"])


def test_the_adapters_dropout_is_as_it_was_after_the_reference(loaded):
    policy = adapted(loaded.model, dropout=0.5)
    add_reference(policy)
    training_mode(policy)
    before = {name: part.training for name, part in policy.named_modules()}
    assert set(before.values()) == {True, False}
    with use_reference(policy):
        assert not any(part.training for part in policy.modules())
    assert {name: part.training for name, part in policy.named_modules()} == before


@pytest.mark.parametrize(
    ("model_type", "attention"),
    [
        ("qwen3_moe", ["k_proj", "o_proj", "q_proj", "v_proj"]),
        ("mixtral", ["k_proj", "o_proj", "q_proj", "v_proj"]),
        ("deepseek_v3", ["kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "q_a_proj", "q_b_proj"]),
    ],
)
def test_experts_that_are_one_table_are_refused_and_attention_beside_them_is_adapted(model_type, attention):
    model = tiny_model(tiny_config(model_type))
    with pytest.raises(ModelError, match="experts stored in one weight") as caught:
        adapted(model)
    assert "mlp.experts" in str(caught.value.got)
    assert f"lora.targets = {json.dumps(attention)}" in str(caught.value.remedy)
    model = tiny_model(tiny_config(model_type))
    before = logits(model)
    policy = adapted(model, targets=attention)
    assert torch.equal(logits(policy), before)
    assert len(trainable_parameters(policy)) == 2 * len(attention) * 2  # layers, A and B


@pytest.mark.parametrize("model_type", ["qwen3_moe", "gpt_oss"])
def test_experts_that_are_named_are_refused(model_type):
    with pytest.raises(ModelError, match="does not fit"):
        adapted(tiny_model(tiny_config(model_type)), targets=["experts"])


def test_layers_that_share_a_weight_are_refused(loaded):
    layers = loaded.model.model.layers
    layers[1].self_attn.q_proj.weight = layers[0].self_attn.q_proj.weight
    with pytest.raises(ModelError, match="share one weight"):
        adapted(loaded.model)  # a merged copy of it would need two values
