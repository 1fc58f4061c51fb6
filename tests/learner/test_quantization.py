"""Runs with ``model.quantization = "nf4"``: one base in memory, exports, refusals, audits."""

import json

import pytest
import torch
from architectures import tiny_model
from peft import PeftModel
from runs import Interrupt, assert_same_run, crash_at
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Qwen3Config

import truing
from truing.cli.export.export import export
from truing.config import resolve
from truing.envs import env_from_recipe
from truing.errors import ModelError, RecipeError
from truing.learner.restore import restore_policy
from truing.measurements.sampler_layer import sync_fact
from truing.models import quantized_linear
from truing.models.export import export as export_policy
from truing.models.forward.score import causal_model
from truing.models.load import load
from truing.models.load_policy import load_policy
from truing.models.lora import frozen_weights
from truing.models.quantized_linear import QuantizedLinear
from truing.models.tiny import byte_tokenizer
from truing.record import RunReader
from truing.trainer.session import open_session

GRPO = {"steps": 2, "prompts_per_step": 3, "group_size": 4, "learning_rate": 1e-3}

pytestmark = pytest.mark.quantization


@pytest.fixture
def table(mini):
    def make(**changes):
        model = {"name": "tiny", "quantization": "nf4", "threads": 1}
        return mini(**{"model": model, "lora": {"rank": 4}} | changes)

    return make


def log_probabilities(model):
    with torch.no_grad():
        return model(input_ids=torch.arange(40, 60)[None]).logits.log_softmax(-1)


def test_trainer_sampler_and_reference_compute_with_one_base(table):
    recipe = resolve(table())
    session = open_session(recipe, env_from_recipe(recipe))
    assert session.sampler.engine.model is causal_model(session.policy.module)
    assert session.policy.whole_module is session.policy.module
    quantized = [part for part in session.policy.module.modules() if isinstance(part, QuantizedLinear)]
    assert {part.weight.dtype for part in quantized} == {torch.uint8}
    assert not any(part.weight.requires_grad or part.absmax.requires_grad for part in quantized)
    assert {weight.dtype for weight in session.policy.parameters.values()} == {torch.float32}


def test_the_digests_of_a_base_cover_its_packed_weights_and_its_scales():
    plain, quantized, again = (load("tiny", device="cpu", quantized=each) for each in (False, True, True))
    assert quantized.digest == again.digest != plain.digest
    names = frozen_weights(quantized.model)
    assert {"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.absmax"} <= names.keys()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora": False}, "lora = false trains the base"),
        ({"engine": {"kind": "vllm"}}, 'model.quantization needs engine.kind = "local"'),
    ],
)
def test_what_cannot_share_the_base_is_refused_by_name(table, changes, message):
    with pytest.raises(RecipeError, match=message):
        resolve(table(**changes))


def test_an_adapter_is_refused_on_a_base_that_is_quantized_otherwise(table, tmp_path):
    recipe = resolve(table())
    loaded, policy = load_policy(recipe)
    export_policy(policy, loaded, recipe.sampling.to_params((0,)), tmp_path / "a", "adapter")
    lora = {"adapter": str(tmp_path / "a")}
    assert load_policy(resolve(table(lora=lora)))[0].digest == loaded.digest
    with pytest.raises(ModelError, match=r'expected: nf4(.|\n)*set model.quantization = "nf4"'):
        load_policy(resolve(table(lora=lora, model={"name": "tiny"})))


def test_an_audit_compares_the_dequantized_weights_with_a_second_implementation(table, monkeypatch):
    recipe = resolve(table())
    _, policy = load_policy(recipe)
    causal = causal_model(policy)
    assert sync_fact(policy, causal, recipe, 0)["largest"] == 0.0
    real = quantized_linear.dequantized
    monkeypatch.setattr(
        quantized_linear, "dequantized", lambda packed, absmax, *rest: real(packed, absmax.roll(1, 0), *rest)
    )
    facts = sync_fact(policy, causal, recipe, 0)
    assert facts["largest"] > 1e-3 * facts["scale"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_is_healthy_and_goes_on_bit_for_bit(table, tmp_path, dtype):
    model = {"name": "tiny", "quantization": "nf4", "dtype": dtype, "threads": 1}
    recipe = table(
        model=model, stages=["sft", "grpo"], grpo={**GRPO, "minibatches": 2}, kl={"coef": 0.05}
    ) | {"checkpoint_every": 1, "doctor": {"budget": 1.0}}
    whole_run, parted = tmp_path / "whole", tmp_path / "parted"
    truing.train(recipe, out=whole_run, on_event=lambda *_: None)
    with pytest.raises(Interrupt):
        truing.train(recipe, out=parted, on_event=crash_at("grpo", 1))
    truing.train(recipe, out=parted, on_event=lambda *_: None, resume=True)
    assert_same_run(whole_run, parted, audits=False)
    findings = [event.payload for event in RunReader(whole_run).events() if event.kind == "finding"]
    assert not [each for each in findings if each.get("verdict") in ("PROVEN", "EVIDENCE")]
    limit = 1e-4 if dtype == "float32" else 0.1
    for row in RunReader(whole_run).steps():
        assert row.metrics.get("mismatch/max_abs", 0.0) < limit


def test_exports_compute_what_was_sampled(table, tmp_path):
    """Merged into the dequantized base, and as an adapter that peft puts on the base of transformers."""
    config = Qwen3Config(
        vocab_size=259,
        hidden_size=64,  # of whole blocks: transformers counts blocks over rows
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        eos_token_id=257,
        pad_token_id=258,
    )
    tiny_model(config).save_pretrained(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    model = {"name": str(tmp_path / "base"), "quantization": "nf4", "threads": 1}
    recipe = table(stages=["sft"], model=model)
    del recipe["grpo"]
    truing.train(recipe, out=tmp_path / "run", on_event=lambda *_: None)
    export(tmp_path / "run", to=tmp_path / "model")
    export(tmp_path / "run", to=tmp_path / "adapter", adapter=True)
    expected = log_probabilities(restore_policy(tmp_path / "run").policy)
    merged = load(str(tmp_path / "model"), device="cpu").model
    torch.testing.assert_close(log_probabilities(merged), expected, atol=1e-4, rtol=0)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    base = AutoModelForCausalLM.from_pretrained(
        config["base_model_name_or_path"],
        dtype=torch.float32,
        device_map="cpu",
        quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    )
    by_peft = PeftModel.from_pretrained(
        base, tmp_path / "adapter"
    ).train()  # else a kernel for whole blocks computes
    torch.testing.assert_close(log_probabilities(by_peft), expected, atol=1e-3, rtol=0)
