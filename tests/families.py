"""Chat templates in the published shapes of families, written for these tests, on a tokenizer of bytes."""

from pathlib import Path

from tokenizers import AddedToken

from truing.chat import make_chat
from truing.models.tiny import byte_tokenizer

FOLDER = Path(__file__).parent / "data" / "templates"

FORMAT_OF = {
    "qwen3_5": "qwen3_coder",
    "qwen3_6": "qwen3_coder",
    "qwen3_8": "qwen3_coder",
    "nemotron_3": "qwen3_coder",
    "glm_4_5": "glm45",
    "glm_4_7": "glm47",
    "lfm2": "lfm2",
    "lfm2_5": "lfm2",
}
TAGS = ("think", "tool_call", "arg_key", "arg_value")
SPECIAL = tuple(
    f"<|{name}|>"
    for name in ("user", "assistant", "system", "observation", "tool_call_start", "tool_call_end")
)


def tokenizer_of(name, *, tags=True):
    """Bytes, the control tokens of the families and, as in most of them, a token for each tag."""
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    written = [f"<{end}{tag}>" for tag in TAGS for end in ("", "/")] if tags else []
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in written])
    tokenizer.chat_template = (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    return tokenizer


def chat_of(name, *, tags=True, **options):
    """How a model with that template is spoken to."""
    tokenizer = tokenizer_of(name, tags=tags)
    stops = ["<|user|>", "<|observation|>"] if name.startswith("glm") else ["<|im_end|>"]
    return make_chat(tokenizer, tokenizer.convert_tokens_to_ids(stops), **options)
