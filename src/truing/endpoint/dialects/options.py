"""Options of a request that could change an answer."""

from collections.abc import Mapping
from typing import Any

WITHOUT_EFFECT = frozenset(
    {
        *("model", "stream", "stream_options", "user", "metadata", "store", "service_tier"),
        *("safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
        *(
            "prediction",
            "max_tool_calls",
            "inference_geo",
            "user_profile_id",
            "workspace_id",
            "cache_control",
        ),
        *("diagnostics", "speed"),
    }
)
"""Options that say how an answer is billed, stored, cached or sent; ``prediction`` makes it faster."""

NEUTRAL = {
    "n": 1,
    "best_of": 1,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "strict": False,
    "response_format": {"type": "text"},
    "verbosity": "medium",
    "modalities": ["text"],
    "logprobs": False,
    "top_logprobs": 0,
    "truncation": "disabled",
    "background": False,
    "ignore_eos": False,
}
"""Values that ask for what an API does without them."""


def wanted_options(options: Mapping[str, Any], *, has_tools: bool) -> dict[str, Any]:
    """Return the options that could change an answer: also those that nobody here knows."""
    return {
        name: value
        for name, value in options.items()
        if name not in WITHOUT_EFFECT and not _is_neutral(name, value, has_tools=has_tools)
    }


def _is_neutral(name: str, value: Any, *, has_tools: bool) -> bool:
    if value is None or value in ("", [], {}):
        return True
    if not has_tools and (name == "parallel_tool_calls" or (name, value) == ("tool_choice", "none")):
        return True
    return name in NEUTRAL and value == NEUTRAL[name]


def renamed(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return options by OpenAI's names; of two that have one name, the one that is not null."""
    result: dict[str, Any] = {}
    for name, value in options.items():
        name = names.get(name, name)
        if value is not None or name not in result:
            result[name] = value
    return result
