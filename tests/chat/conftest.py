"""Real chat templates, and a real tokenizer to put them on."""

import copy
import json
from importlib.resources import files

import pytest
from episodes import CONTROL, stop_ids
from transformers import AutoTokenizer

from truing.chat import make_chat

FROM_TRL = (
    "deepseekv3",
    "deepseek_r1_distill",
    "gptoss",
    "gemma3",
    "gemma4",
    "gemma4_v5",
    "glm4moe",
    "lfm2",
    "lfm2_2_5",
    "lfm2_v2",
    "llama3_2",
    "muse_glimmer",
    "nemotron_3_nano",
    "nemotron_3_ultra",
    "qwen3_6",
    "qwen3_8",
    "qwen3_instruct_2507",
)


@pytest.fixture
def templates(shared):
    """All chat templates of the data and some of TRL's, by name."""
    rows = [
        json.loads(line) for line in (shared / "chat_templates" / "templates.jsonl").open(encoding="utf-8")
    ]
    known = {row["name"]: row["template"] for row in rows}
    with (shared / "chat_templates" / "golden_huggingface_js.jsonl").open(encoding="utf-8") as lines:
        known |= {row["name"]: row["chat_template"] for row in map(json.loads, lines)}
    pytest.importorskip("trl", reason="TRL is not installed: its chat templates were not tried")
    folder = files("trl") / "chat_templates"
    return known | {f"trl/{name}": (folder / f"{name}.jinja").read_text("utf-8") for name in FROM_TRL}


@pytest.fixture
def minimind(shared):
    """A small tokenizer that has the control tokens of every family."""
    tokenizer = AutoTokenizer.from_pretrained(shared / "tokenizers" / "minimind")
    tokenizer.add_special_tokens({"additional_special_tokens": list(CONTROL)})
    tokenizer.bos_token, tokenizer.eos_token = "<s>", "</s>"
    return tokenizer


@pytest.fixture
def speak(templates, minimind):
    """``speak(template, tokenizer)``: how a model with that template is spoken to."""

    def made(name, tokenizer=minimind, **options):
        own = copy.copy(tokenizer)
        own.chat_template = templates[name]
        return make_chat(own, stop_ids(own), **options)

    return made
