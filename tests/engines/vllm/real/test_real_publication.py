"""Weights are sent to a real vLLM server and proven; faults inside it are named."""

import math

import pytest

from truing.config.sections import LoraConfig
from truing.engines.vllm.client import VllmClient
from truing.errors import PublicationError
from truing.models.digest import quick_sum
from truing.models.load_policy import load_policy
from truing.models.lora import trainable_parameters

ADAPTER_FAULTS = {
    "zeroed": "their adapter is missing or zero",
    "scaled": "the adapter is scaled by 2 times the declared alpha / rank",
    "layer_dropped": "their adapter is missing or zero",
    "stale": "they are the weights of version 2, 1 publication before",
    "not_active": "it scores with the base model without its adapter",
}


@pytest.mark.parametrize("model", ["smollm2", "lora_qwen3"])
def test_an_adapter_is_proven(model, request):
    served = request.getfixturevalue(model)
    layers = served.policy.config.num_hidden_layers
    with served.engine() as engine:
        first = served.publish(engine, 0)
        assert first["layers"]["delta"]["layers"] == 7 * layers
        assert first["layers"]["linear"]["layers"] >= 7 * layers + 1
        assert first["layers"]["tables"]["layers"] >= 1
        assert first["rows"]["told_apart_from"] == []
        served.move(seed=1)
        receipt = served.publish(engine, 1)
    # once for a server that has started: within its 512 tokens
    assert (first["turns"]["longest"], receipt["turns"]["longest"]) == (508, 10)
    assert receipt["rows"]["told_apart_from"] == [
        "the base model without its adapter",
        "the weights of version 0",
    ]
    for each in (first, receipt):
        assert each["rows"]["largest"] < 1e-4
        assert each["turns"]["largest"] < 1e-4
        assert each["layers"]["delta"]["largest"] < 4
    assert receipt["surviving"] == 1


def test_a_saved_adapter_is_proven(lora_qwen3, tmp_path):
    lora_qwen3.move(seed=5)
    lora_qwen3.policy.save_pretrained(tmp_path)
    recipe = lora_qwen3.recipe.model_copy(
        update={"lora": LoraConfig(adapter=str(tmp_path), rank=None, alpha=None, targets=None)}
    )
    _, policy = load_policy(recipe)
    with lora_qwen3.engine() as engine:
        receipt = engine.publish(policy, 0, quick_sum(trainable_parameters(policy)))
    assert receipt["rows"]["told_apart_from"] == ["the base model without its adapter"]
    assert receipt["rows"]["largest"] < 1e-4
    assert receipt["layers"]["delta"]["largest"] < 4


def test_all_weights_are_proven(full_qwen3):
    with full_qwen3.engine() as engine:
        first = full_qwen3.publish(engine, 0)
        full_qwen3.move(seed=1)
        receipt = full_qwen3.publish(engine, 1)
    assert math.isnan(first["surviving"])
    assert receipt["surviving"] == 1
    for each in (first, receipt):
        assert each["layers"]["linear"]["layers"] == 7 * 3 + 2  # the embedding and the head, tied or not
        assert each["layers"]["linear"]["largest"] < 4
        assert each["layers"]["vectors"]["compared"] == 4 * 3 + 1
        assert each["rows"]["largest"] < 1e-4
    assert receipt["rows"]["told_apart_from"] == ["the weights of version 0"]


def test_weights_that_are_proven_are_not_sent_again(lora_qwen3):
    with lora_qwen3.engine() as engine:
        receipt = lora_qwen3.publish(engine, 0)
        lora_qwen3.plant("zeroed")
        assert lora_qwen3.publish(engine, 0) == receipt


@pytest.mark.parametrize("fault", ADAPTER_FAULTS)
def test_a_fault_of_the_adapter_is_named(lora_qwen3, fault):
    with lora_qwen3.engine() as engine:
        lora_qwen3.publish(engine, 0)
        lora_qwen3.move(seed=1)
        lora_qwen3.publish(engine, 1)
        lora_qwen3.plant(fault)
        if fault == "stale":  # keeps the next adapter, and gives it in place of the one after
            lora_qwen3.move(seed=2)
            lora_qwen3.publish(engine, 2)
        lora_qwen3.move(seed=3)
        with pytest.raises(PublicationError, match=ADAPTER_FAULTS[fault]) as raised:
            lora_qwen3.publish(engine, 3)
    if fault == "layer_dropped":
        assert "in 1 of" in raised.value.what
        assert "down_proj" in raised.value.got


def test_a_moved_element_of_the_base_is_named(smollm2):
    with smollm2.engine() as engine:
        layer = smollm2.plant("element_moved")["layer"]
        with pytest.raises(PublicationError, match="they are neither earlier ones") as raised:
            smollm2.publish(engine, 0)
    assert "in 1 of" in raised.value.what
    assert layer.replace("qkv_proj", "q_proj").removesuffix(".base_layer") in raised.value.got


def test_a_head_that_keeps_its_packed_copy_is_named(full_qwen3):
    with full_qwen3.engine() as engine:
        full_qwen3.publish(engine, 0)
        full_qwen3.move(seed=1)
        full_qwen3.plant("head_stale")
        if not full_qwen3.tied:  # a head of its own is packed by the reload
            full_qwen3.publish(engine, 1)
            return
        with pytest.raises(PublicationError, match=r"in 1 of .* the weights of version 0") as raised:
            full_qwen3.publish(engine, 1)
    assert "lm_head" in raised.value.got


def test_keys_and_values_of_other_weights_are_noticed(full_qwen3, monkeypatch):
    post = VllmClient.post
    with full_qwen3.engine() as engine:
        full_qwen3.publish(engine, 0)
        full_qwen3.move(seed=1)
        monkeypatch.setattr(
            VllmClient,
            "post",
            lambda client, path, *rest, **options: (
                {"success": True} if path == "/reset_prefix_cache" else post(client, path, *rest, **options)
            ),
        )
        with pytest.raises(PublicationError, match="its prefix cache holds other keys and values"):
            full_qwen3.publish(engine, 1)
