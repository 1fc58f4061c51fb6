"""Models that are made at random, for tests of architectures: their measures, and one of any type."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}

VOCABULARY, POSITIONS, BORDER = 264, 256, 16
"""Ids, positions, and the tokens after which windows, chunks and indices leave something out."""

HEADS, LAYERS, EXPERTS, WIDTH, INNER, STATE = 4, 2, 4, 32, 48, 8

TINY: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "is_decoder": True,
    **dict.fromkeys(("decoder_start_token_id", "forced_eos_token_id", "sep_token_id", "cls_token_id"), 3),
    # widths
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "word_embed_proj_dim"), WIDTH),
    **dict.fromkeys(("emb_dim", "embedding_dim", "attention_hidden_size", "lru_width"), WIDTH),
    **dict.fromkeys(("pronunciation_embed_dim", "shape_embed_dim"), STATE),
    **dict.fromkeys(("input_embedding_size", "output_embedding_size", "ple_embed_dim"), WIDTH),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "dim_ff", "dff", "d_inner", "n_inner"), INNER),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "ffn_hidden_size", "feed_forward_size"), INNER),
    **dict.fromkeys(("intermediate_size_mlp", "dense_intermediate_size"), INNER),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), INNER // 2),
    **dict.fromkeys(("shared_experts_intermediate_size", "shared_intermediate_size"), INNER // 2),
    **dict.fromkeys(("expert_ffn_hidden_size", "moe_shared_expert_intermediate_size"), INNER // 2),
    # layers
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks"), LAYERS),
    **dict.fromkeys(("decoder_layers", "encoder_layers", "num_layers_per_stack"), LAYERS),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), LAYERS),
    # heads
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), HEADS),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), HEADS),
    **dict.fromkeys(("swa_num_attention_heads",), HEADS),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"), HEADS // 2),
    **dict.fromkeys(("head_dim", "dim_head", "d_head", "kv_channels", "swa_head_dim"), WIDTH // HEADS),
    **dict.fromkeys(("attention_head_dim", "attention_head_size", "v_head_dim"), WIDTH // HEADS),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim"), WIDTH // HEADS),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "o_lora_rank"), 16),
    "qk_head_dim": 2 * WIDTH // HEADS,
    "global_head_dim": WIDTH // HEADS,
    "rotary_dim": 4,
    "query_pre_attn_scalar": 8,
    # experts
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), EXPERTS),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1),
    **dict.fromkeys(("zero_expert_num", "first_k_dense_replace", "moe_layer_start_index"), 1),
    "router_hidden_size": 8,
    # states
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "linear_num_heads"), HEADS),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), STATE),
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), STATE),
    **dict.fromkeys(("mamba_n_heads", "n_mamba_heads", "mamba_num_heads"), HEADS),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "mamba_headdim"), 2 * WIDTH // HEADS),
    **dict.fromkeys(("mamba_n_groups", "n_groups", "mamba_ngroups", "mamba_expand"), 1),
    **dict.fromkeys(("chunk_size", "mamba_chunk_size", "block_size"), BORDER),
    **dict.fromkeys(("time_step_rank", "mamba_dt_rank"), STATE),
    # borders
    **dict.fromkeys(("sliding_window", "sliding_window_size", "attention_chunk_size", "index_topk"), BORDER),
    **dict.fromkeys(("attention_window_size", "window_size", "local_attention", "keep_window_size"), BORDER),
    **dict.fromkeys(("index_head_dim",), STATE),
    "index_n_heads": 2,
    "rel_extent": 2 * BORDER,
    # what happens to logits
    **dict.fromkeys(("logits_scaling", "logit_scale"), 4.0),
    **dict.fromkeys(("final_logit_softcapping", "logits_soft_cap"), 3.0),
    "logits_mup_width_multiplier": 2.0,
    **dict.fromkeys(("hidden_size_per_layer_input", "adapter_rank", "laurel_rank"), STATE),
    "vocab_size_per_layer_input": VOCABULARY,
    "decoder_vocab_size": VOCABULARY,
    "unpadded_vocab_size": VOCABULARY,
    "max_seq_len": POSITIONS,
    "n_positions": POSITIONS,
    "max_target_positions": POSITIONS,
}
"""What a config's own measures become, by their names."""

ALIKE = {"num_key_value_heads": HEADS}  # latent attention has as many heads for keys
NARROW = {"mamba_d_head": WIDTH // HEADS}
TWO = ["sliding_attention", "full_attention"]
OWN_KEYS = {
    "layer_types": TWO,
    "num_hidden_layers": 2,
    "num_kv_shared_layers": 0,
    "intermediate_size": INNER,
    "activation_sparsity_pattern": [0.0, 0.0],
}
DOUBLE = {  # Zamba attends to its input beside the hidden states
    "num_hidden_layers": 4,
    "layers_block_type": ["linear_attention", "hybrid"] * 2,
    "attention_hidden_size": 2 * WIDTH,
    "attention_head_dim": 2 * WIDTH // HEADS,
    "num_key_value_heads": HEADS,
    "mamba_expand": 2,
}
ROPE = {"rope_type": "default", "rope_theta": 1e4}
OWN: dict[str, dict[str, Any]] = {
    "bamba": NARROW | {"attn_layer_indices": [1]},
    "cohere_compass_text": {"layer_types": TWO, "rope_parameters": dict.fromkeys(TWO, ROPE)},
    "dots1": {"n_shared_experts": 1},
    "dots3_note_text": ALIKE,
    "falcon_h1": NARROW | {"mamba_d_ssm": WIDTH, "lm_head_multiplier": 0.5},
    "gemma3n_text": OWN_KEYS,
    "gemma4_audio": {"use_clipped_linears": False},  # its bounds are infinite until they are measured
    "granitemoehybrid": NARROW | {"layer_types": ["mamba", "attention"]},
    "hrm_text": {"num_hidden_layers": 1, "num_layers_per_stack": None},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_offset": 0},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": HEADS, "head_dim": 2 * WIDTH // HEADS, "expand": 2, "n_groups": 1},
    "qwen4_exp_text": {"indexer_compress_ratio": 4, "indexer_budget": BORDER}
    | {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": STATE},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"axial_pos_embds_dim": [8, 24], "axial_pos_shape": [16, 16]},
    "zamba": DOUBLE | {"attn_layer_period": 2, "attn_layer_offset": 1},
    "zamba2": DOUBLE,
    "zaya": {"num_experts_per_tok": 1},
}
"""What single types need beside it."""

LISTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def tiny_config(model_type: str) -> PreTrainedConfig:
    """The config of a type, as small as it can be while it has layers of every kind that the type has."""
    kind = CONFIG_MAPPING[model_type]
    subs = getattr(kind, "sub_configs", {})
    parts = {name: _measures(sub.model_type, sub) for name, sub in subs.items() if hasattr(sub, "model_type")}
    for name in subs.keys() - parts.keys():  # of any type: take that which it is by default
        if usual := getattr(kind(), name, None):
            own = _measures(usual.model_type, type(usual))
            parts[name] = {"model_type": usual.model_type} | own
    config = kind(**_measures(model_type, kind, parts) | parts)
    if not parts and not hasattr(config, "max_position_embeddings"):
        config.max_position_embeddings = POSITIONS  # or no run would know how long a sequence may be
    return config


def tiny_model(config: PreTrainedConfig) -> PreTrainedModel:
    """A random model in fp32 and evaluation mode, the same each time."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # what is 0 or 1 at first would hide that it is left out
            parameter += 0.02 * torch.randn_like(parameter) * ((parameter == 0) | (parameter == 1))
    return model


def _measures(model_type: str, kind: type[PreTrainedConfig], parts: Mapping[str, Any] = {}) -> dict[str, Any]:
    """The measures of a config that has its own names for them."""
    named = kind(**parts).to_dict()
    layers = next((named[name] for name in LISTS if isinstance(named.get(name), int)), 0)
    lists = {k: v for k, v in named.items() if isinstance(v, list) and len(v) == layers > 2}
    table = {name: value for name, value in TINY.items() if name in named}
    if "kv_lora_rank" in named:
        table |= ALIKE
    if lists:
        kinds = {repr(each): i for i, each in reversed(list(enumerate(zip(*lists.values(), strict=True))))}
        chosen = sorted(kinds.values()) if len(kinds) > 1 else [0, 1]
        table |= {name: [values[i] for i in chosen] for name, values in lists.items()}
        table |= {name: len(chosen) for name in LISTS if name in named}
    return table | OWN.get(model_type, {})
