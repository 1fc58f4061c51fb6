"""GGUF files: the converted folder computes and tokenises as the original, or the file is refused."""

import shutil

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from truing.errors import ModelError
from truing.models import tiny
from truing.models.load import load

NORMAL, CONTROL = 1, 3
PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
"""Names of a layer's weights in transformers and in llama.cpp."""


@pytest.fixture(scope="module")
def model():
    """Tiny with two more tokens: one of two spaces, and one to keep the merge that makes it."""
    model = tiny.tiny_model()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model.resize_token_embeddings(260, mean_resizing=False)
    return model.eval()


def rotated(weight, heads):
    """llama.cpp stores the two halves of each head's rotary pairs interleaved."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(path, model, pre):
    config = model.config
    out = GGUFWriter(str(path), "llama")
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_vocab_size(config.vocab_size)
    letters = bytes_to_unicode()
    space = letters[ord(" ")]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(pre)
    out.add_token_list([*(letters[byte] for byte in range(256)), tiny.BEGIN, tiny.END, tiny.PAD, space * 2])
    out.add_token_types([NORMAL] * 256 + [CONTROL] * 3 + [NORMAL])
    out.add_token_merges([f"{space} {space}"])
    out.add_eos_token_id(257)
    out.add_pad_token_id(258)
    out.add_chat_template(tiny.CHATML)
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    state = {name: weight.detach().numpy() for name, weight in model.state_dict().items()}
    out.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    out.add_tensor("output_norm.weight", state["model.norm.weight"])
    for layer in range(config.num_hidden_layers):
        for name, short in PARTS.items():
            weight = state[f"model.layers.{layer}.{name}.weight"]
            weight = rotated(weight, heads[name]) if name in heads else weight
            out.add_tensor(f"blk.{layer}.{short}.weight", np.ascontiguousarray(weight))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def test_a_gguf_file_computes_what_the_model_computes(model, tmp_path, cache):
    loaded = load(str(write_gguf(tmp_path / "model.gguf", model, "gpt-2")), device="cpu")
    ids = torch.tensor([[104, 101, 108, 108, 111, 257]])
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(ids).logits, model(ids).logits, rtol=0, atol=1e-6)
    assert (loaded.stop_ids, loaded.pad_id, loaded.context_length) == ((257,), 258, tiny.CONTEXT)
    assert loaded.path.parent == cache / "models"
    assert loaded.model.get_input_embeddings().weight is loaded.model.get_output_embeddings().weight


def test_a_converted_file_is_an_ordinary_model_that_trains_and_saves(model, tmp_path, cache):
    loaded = load(str(write_gguf(tmp_path / "model.gguf", model, "gpt-2")), device="cpu")
    ids = torch.tensor([[104, 105]])
    loaded.model(input_ids=ids, labels=ids).loss.backward()
    loaded.model.save_pretrained(tmp_path / "saved")
    assert not hasattr(loaded.model.config, "quantization_config")


def test_the_same_content_is_converted_once(model, tmp_path, cache):
    first = write_gguf(tmp_path / "a.gguf", model, "gpt-2")
    again = shutil.copy(first, tmp_path / "b.gguf")
    other = write_gguf(tmp_path / "c.gguf", model, "smollm")
    paths = [load(str(path), device="cpu").path for path in (first, again, other)]
    assert paths[0] == paths[1] != paths[2]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        # GPT-2 leaves the last space of a run to the word after it: "a", " ", " 1".
        ("gpt-2", [97, 32, 32, 49]),
        # With single digits the run stands alone: "a", "  ", "1".
        ("smollm", [97, 259, 49]),
    ],
)
def test_text_is_cut_as_the_file_declares(model, tmp_path, cache, pre, expected):
    loaded = load(str(write_gguf(tmp_path / "model.gguf", model, pre)), device="cpu")
    assert loaded.tokenizer("a  1")["input_ids"] == expected
    assert AutoTokenizer.from_pretrained(loaded.path)("a  1")["input_ids"] == expected


def test_an_unknown_way_of_cutting_text_is_refused(model, tmp_path, cache):
    path = write_gguf(tmp_path / "model.gguf", model, "somebody-else")
    with pytest.raises(ModelError, match="somebody-else"):
        load(str(path), device="cpu")
    assert list((cache / "models").iterdir()) == []


def test_a_file_that_is_no_gguf_is_refused(tmp_path, cache):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model")
    with pytest.raises(ModelError, match="cannot be read"):
        load(str(path), device="cpu")
