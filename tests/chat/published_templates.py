"""Chat templates by name: TRL's (``trl/…``), the tests' own (``written/…``), and published ones."""

from functools import cache
from importlib.resources import files

import pytest
from _pytest.mark import ParameterSet
from folders import WRITTEN, published_files, rows

TRL = files("trl") / "chat_templates"
FROM_TRL = (
    "deepseekv3",
    "deepseek_r1_distill",
    "gemma",
    "gemma3",
    "gemma4",
    "gemma4_v5",
    "glm4moe",
    "gptoss",
    "lfm2",
    "lfm2_2_5",
    "lfm2_v2",
    "llama3",
    "llama3_1",
    "llama3_2",
    "muse_glimmer",
    "nemotron_3_nano",
    "nemotron_3_ultra",
    "qwen2_5",
    "qwen3",
    "qwen3_5_nothink",
    "qwen3_5_think",
    "qwen3_6",
    "qwen3_8",
    "qwen3_instruct_2507",
    "qwen3_training",
)


@cache
def here() -> dict[str, str]:
    """The templates that a checkout with the dev extra has."""
    own = {file.stem: file for file in (WRITTEN / "templates").glob("*.jinja")}
    own |= {file.parent.name: file for file in (WRITTEN / "tokenizers").glob("*/chat_template.jinja")}
    written = {f"written/{name}": file.read_text("utf-8") for name, file in own.items()}
    return written | {name: template_of(name) for name in map("trl/{}".format, FROM_TRL)}


@cache
def published() -> dict[str, str]:
    """The templates of the published files."""
    folder = published_files() / "chat_templates"
    known = {row["name"]: row["template"] for row in rows(folder / "templates.jsonl")}
    return known | {row["name"]: row["chat_template"] for row in rows(folder / "golden_huggingface_js.jsonl")}


def template_of(name: str) -> str:
    """A template by its name."""
    if name.startswith("trl/"):
        return (TRL / f"{name[4:]}.jinja").read_text("utf-8")
    return (here() if is_here(name) else published())[name]


def is_here(name: str) -> bool:
    """Whether no published file is needed for it."""
    return name.startswith(("trl/", "written/"))


def case(name: str, *values: object) -> ParameterSet:
    """A case of a test about a template, ``data`` where it has to be read from the published files."""
    return pytest.param(name, *values, marks=() if is_here(name) else pytest.mark.data, id=name)


def cases(*names: str) -> list[ParameterSet]:
    """A case of each."""
    return [case(name) for name in names]
