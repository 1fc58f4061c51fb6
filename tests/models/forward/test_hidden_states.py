"""Trees against padded rows and against the model alone: the same to rounding, whatever the tree."""

import pytest
import torch
from architectures import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import sample
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    DeepseekV3Config,
    DiffLlamaConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    NemotronConfig,
    Qwen3Config,
    RwkvConfig,
)

from truing.errors import ModelError
from truing.models.forward.hidden_states import hidden_before, split_micro_batches, why_no_tree
from truing.models.forward.token_tree import build_tree
from truing.models.forward.tree_attention import NAME

SIZES = SMALL | {"vocab_size": 32, "max_position_embeddings": 128, "pad_token_id": 0}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8}
VALUES = {"v_head_dim": 4, "num_key_value_heads": 4}  # narrower than keys
FEW = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 16}
TREES = [
    LlamaConfig(**SIZES),
    Qwen3Config(**SIZES),
    MistralConfig(**SIZES, sliding_window=64),
    Gemma3TextConfig(**SIZES, sliding_window=64),
    GPT2Config(vocab_size=32, n_embd=32, n_layer=2, n_head=4, n_positions=128),
    NemotronConfig(**SIZES),  # its layers pass no keywords on
    DiffLlamaConfig(**SIZES),  # each layer attends twice
    DeepseekV3Config(**SIZES | LATENT | VALUES | FEW | {"num_experts_per_tok": 2}),
]
PADDED = [
    (MistralConfig(**SIZES, sliding_window=4), "sees 4 tokens back"),
    (Gemma3TextConfig(**SIZES, sliding_window=4), "sees 4 tokens back"),
    (Gemma2Config(**SIZES), "a custom attention"),
    (GptOssConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2), "a custom attention"),
    (MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2), "layers of linear_attention"),
]
ROWS = [[3, 4, 5, 6, 7, 8, 9], [3, 4, 5, 6, 9, 9], [3, 4, 5], [3, 4, 9, 9, 9, 9, 9, 9], [7, 7, 7, 7]]


def made(config):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def alone(model, rows):
    """The hidden states before all tokens but the first, by the model's own forward, row by row."""
    return torch.cat([model.get_decoder()(torch.tensor([ids])).last_hidden_state[0, :-1] for ids in rows])


def together(model, rows):
    samples = [sample(ids[:1], ids[1:], name=str(b)) for b, ids in enumerate(rows)]
    expected = torch.tensor([(b, t) for b, ids in enumerate(rows) for t in range(1, len(ids))])
    return hidden_before(model, [sample.token_ids for sample in samples], expected.T)


def gradients(model, hidden):
    model.zero_grad()
    weight = torch.linspace(-1, 1, hidden.numel()).view_as(hidden)
    (hidden * weight).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def same(model, rows):
    one, other = together(model, rows), alone(model, rows)
    assert torch.allclose(one, other, atol=1e-4)
    mine, plain = gradients(model, one), gradients(model, other)
    assert (mine - plain).norm() <= 1e-4 * plain.norm()


@pytest.mark.parametrize("config", TREES, ids=lambda config: config.model_type)
def test_a_tree_is_computed_as_its_samples_are_alone(config):
    model = made(config)
    assert why_no_tree(model, 8) == ""
    same(model, ROWS)
    assert model.get_decoder().config._attn_implementation == "sdpa"  # as it was before


@pytest.mark.parametrize(("config", "reason"), PADDED, ids=lambda value: getattr(value, "model_type", ""))
def test_what_cannot_be_a_tree_is_padded_and_says_why(config, reason):
    model = made(config)
    assert reason in why_no_tree(model, 8)
    same(model, ROWS)


def test_a_model_with_a_state_cannot_be_a_tree():
    assert "carries a state" in why_no_tree(made(RwkvConfig(vocab_size=32, hidden_size=16)), 8)


def test_positions_that_depend_on_the_longest_of_a_batch_are_refused():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    model = made(LlamaConfig(**SIZES | {"max_position_embeddings": 6}, rope_parameters=rope))
    same(model, [ids[:6] for ids in ROWS])
    with pytest.raises(ModelError, match="changes the positions"):
        together(model, [[3] * 9])


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 6,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SIZES, rope_parameters=LONGROPE),
        Gemma3TextConfig(
            **SIZES,
            sliding_window=64,
            rope_parameters={"full_attention": LONGROPE, "sliding_attention": PLAIN},
        ),
    ],
    ids=lambda config: config.model_type,
)
def test_positions_that_switch_are_refused_wherever_a_config_says_so(config):
    model = made(config)
    same(model, [ids[:6] for ids in ROWS])
    with pytest.raises(ModelError, match="changes the positions"):
        together(model, [[3] * 9])


@pytest.mark.parametrize(
    "asked",
    [
        {"dropout": 0.1},
        {"attention_mask": torch.zeros(1, 1, 3, 3)},
        {"softcap": 30.0},
        {"is_causal": False},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_an_attention_that_a_tree_cannot_compute_is_refused(asked):
    attend = AttentionInterface()[NAME]
    query = torch.randn(1, 2, 3, 8)
    with pytest.raises(ModelError, match="cannot be computed in a tree"):
        attend(None, query, query, query, **{"attention_mask": None} | asked)


LLAMA = made(LlamaConfig(**SIZES))


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(3, 5), min_size=2, max_size=24), min_size=1, max_size=8))
def test_any_tree(rows):
    same(LLAMA, rows)


@pytest.mark.gpu
def test_on_cuda_a_tree_has_the_states_and_gradients_of_the_cpu():
    wide = {"hidden_size": 128, "head_dim": 32}
    causal = made(LlamaConfig(**SIZES | wide))
    wanted = torch.tensor([[b, t] for b, row in enumerate(ROWS) for t in range(1, len(row))]).T
    table = {}
    for device in ("cpu", "cuda"):
        causal.to(device).zero_grad()
        hidden = hidden_before(causal, [torch.tensor(row) for row in ROWS], wanted)
        hidden.square().sum().backward()
        table[device] = [
            hidden.detach().cpu(),
            *(each.grad.clone().cpu() for each in causal.get_decoder().parameters()),
        ]
    for one, other in zip(table["cpu"], table["cuda"], strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("config", [LlamaConfig(**SIZES), PADDED[0][0]], ids=["tree", "padded"])
def test_micro_batches_hold_every_sample_once_and_stay_in_budget(config):
    model = made(config)
    samples = [sample([3] * 6, [4 + b % 3] * (1 + b), name=str(b)) for b in range(9)]
    parts = split_micro_batches(model, samples, 24)
    assert sorted(s.sample_id for part in parts for s in part.samples) == [str(b) for b in range(9)]
    assert 1 < len(parts) < 9
    for part in parts:
        lengths = [len(each) - 1 for each in part.samples]
        tree = len(build_tree([each.token_ids[:-1] for each in part.samples]).keys_L)
        assert (
            part.tokens == (len(lengths) * max(lengths) if why_no_tree(model, max(lengths)) else tree) <= 24
        )
    assert split_micro_batches(model, [], 24) == []
