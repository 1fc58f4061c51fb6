"""Architectures: the forward of trees is the model's own, or the run is refused."""

import pytest
import torch
from architectures import BORDER, SMALL, tiny_config, tiny_model
from samples import sample
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    MistralConfig,
    Qwen3Config,
)

from truing.engines.base import Request
from truing.engines.local.engine import LocalEngine
from truing.engines.prove_sampler import prove_sampler
from truing.errors import ModelError
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.models.forward_proof import prove_forward
from truing.models.lora import add_lora, training_mode
from truing.types.sampling_params import SamplingParams

SIZES = SMALL | {
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}


def made(config):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize(
    "config", [Qwen3Config(**SIZES), MistralConfig(**SIZES, sliding_window=None), GPT2Config(**GPT2)]
)
def test_these_compute_what_they_compute_alone(config):
    prove_forward(made(config))


SCALED = ("gemma2", "gemma3n_text", "vaultgemma", "cohere", "granite", "minicpm3")


@pytest.mark.parametrize("model_type", SCALED)
def test_capped_and_scaled_logits_are_proven(model_type):
    prove(model_type)


@pytest.mark.parametrize("model_type", SCALED)
def test_an_output_layer_taken_for_all_of_it_is_refused_though_a_cap_leaves_small_logits_alone(
    model_type, monkeypatch
):
    monkeypatch.setattr("truing.models.forward.score.head_of", lambda causal: causal.get_output_embeddings())
    with pytest.raises(ModelError, match=model_type):
        prove_forward(tiny_model(tiny_config(model_type)))


@pytest.mark.parametrize(
    ("model_type", "why"),
    [
        ("llama4_text", "no decoder that is separate from its output layer"),
        ("modernbert-decoder", "no decoder that is separate from its output layer"),
        ("minimax", "Truing cannot sample from this model"),
        ("openai-gpt", "Truing cannot sample from this model"),
        ("reformer", "Truing cannot sample from this model"),
        ("cpmant", "is not causal"),
        ("xmod", "Truing cannot compute this model"),
        ("xlnet", "Truing cannot compute this model"),
        ("mamba2", "the sampler and the trainer compute different log-probabilities"),
        ("rwkv", "the sampler and the trainer compute different log-probabilities"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(model_type, why):
    with pytest.raises(ModelError) as caught:
        prove(model_type)
    assert why in caught.value.what
    assert model_type in caught.value.what
    assert "truing explain models" in str(caught.value)


@pytest.mark.parametrize("changes", [{}, {"logits_soft_cap": 1e9}], ids=["capped", "hardly"])
def test_a_state_that_pads_reach_is_refused_with_the_prompts_that_show_it(changes):
    """Of prompts of 1 and 2 ids the shorter has a pad, which a convolution with a bias carries on."""
    config = tiny_config("recurrent_gemma")
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(ModelError, match="for prompts of") as caught:
        prove_model(tiny_model(config))
    assert "recurrent_gemma" in caught.value.what


def test_an_encoder_that_attends_both_ways_is_refused():
    config = tiny_config("bert")
    config.is_decoder = False
    with pytest.raises(ModelError, match="is not causal"):
        prove_model(tiny_model(config))


def test_an_error_of_memory_is_none_of_the_architecture(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("truing.models.forward_proof.score", full)
    with pytest.raises(torch.OutOfMemoryError):
        prove("llama")


@pytest.mark.parametrize("model_type", ["deepseek_v32", "glm_moe_dsa"])
def test_attention_beyond_what_its_index_holds_is_refused_in_trainer_and_sampler(model_type):
    model = tiny_model(tiny_config(model_type))
    prove_model(model)
    rows = collate([sample([3, 4, 5], list(range(6, 6 + BORDER)))])
    with pytest.raises(ModelError, match="an indexer drops tokens") as caught:
        score(model, rows, rows.policy_mask)
    assert f"at most {BORDER}" in str(caught.value)
    sampling_params = SamplingParams(max_new_tokens=BORDER)
    with pytest.raises(ModelError, match="an indexer drops tokens"):
        LocalEngine(model, context_length=128).generate(
            [Request(torch.tensor([3]), ("x", 0))], sampling_params
        )


def prove(model_type):
    prove_model(tiny_model(tiny_config(model_type)))


def prove_model(model):
    prove_forward(model)
    prove_sampler(model, LocalEngine(model, context_length=128))


def test_the_head_is_itself_again_after_the_proof():
    model, ids = made(Qwen3Config(**SIZES)), torch.tensor([[3, 4, 5]])
    before = model(ids).logits
    prove_forward(model)
    assert torch.equal(model(ids).logits, before)


def test_a_models_own_dropout_stays_off_and_the_adapters_goes_on():
    model = made(GPT2Config(**GPT2, resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5))
    batch = collate([sample([3, 4, 5], [6, 7, 8])])
    training_mode(model)
    one, two = (score(model, batch, batch.policy_mask).logprob for _ in range(2))
    assert torch.equal(one, two)
    policy = add_lora(model, rank=2, alpha=4, dropout=0.5, targets="all-linear", seed=0)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.1)
    training_mode(policy)
    one, two = (score(policy, batch, batch.policy_mask).logprob for _ in range(2))
    assert not torch.equal(one, two)
