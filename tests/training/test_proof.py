"""Architectures: the forward of trees is the model's own, or the run is refused."""

import pytest
import torch
from architectures import SMALL
from samples import sample
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    GraniteConfig,
    MistralConfig,
    Qwen3Config,
    VaultGemmaConfig,
)

from truing.errors import ModelError
from truing.models.lora import add_lora, training_mode
from truing.models.score import score
from truing.training.collate import collate
from truing.training.model_proof import prove_forward

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


@pytest.mark.parametrize(
    "config", [GraniteConfig(**SIZES, logits_scaling=4.0), CohereConfig(**SIZES, logit_scale=0.25)]
)
def test_scaled_logits_are_refused(config):
    with pytest.raises(ModelError, match=config.model_type):
        prove_forward(made(config))


@pytest.mark.parametrize("config", [Gemma2Config(**SIZES), VaultGemmaConfig(**SIZES)])
def test_capped_logits_are_refused_though_a_cap_leaves_small_ones_alone(config):
    with pytest.raises(ModelError, match=config.model_type):
        prove_forward(made(config))


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
