"""Makes the chat of a model: its template shows whether it supports tools, and how it writes calls."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from truing.chat.apply_template import check_template_kwargs, prompt_date
from truing.chat.call_parser import FORMATS, unknown_format
from truing.chat.chat import Chat
from truing.chat.template_features import (
    native_format,
    shows_system,
    takes_orphan_tool_messages,
    takes_separate_reasoning,
)
from truing.chat.tool_prompt import ToolPrompt
from truing.errors import ModelError


def make_chat(
    tokenizer: PreTrainedTokenizerBase,
    stop_ids: Sequence[int],
    *,
    tool_format: str = "auto",
    tool_prompt: Literal["auto", "hermes", "brief"] = "auto",
    template_kwargs: Mapping[str, Any] | None = None,
    date: datetime.date | None = None,
    content_tokens: Literal["free"] | Sequence[str] = (),
) -> Chat:
    """Return the chat of a model; its template shows whether it supports tools and how it writes calls.

    Args:
        tokenizer: with a chat template.
        stop_ids: the ids that end a turn.
        tool_format: a name from the table in chat/call_parser.py; "auto" detects it from the template.
        tool_prompt: "auto" supplies "hermes" if the template shows no tools; a name always applies.
        template_kwargs: extra variables of the template, such as ``enable_thinking``.
        date: what a template writes as today's date at each rendering; None for the date of this call.
        content_tokens: special tokens that data may contain as tokens; "free" is all that may be named.
    """
    check_template_kwargs(tokenizer, template_kwargs or {})
    variables = {**(template_kwargs or {}), "todays_date": prompt_date(tokenizer, date)}
    chat = _made_chat(tokenizer, stop_ids, tool_format, tool_prompt, variables)
    tokens = chat.free_tokens if content_tokens == "free" else content_tokens
    if wrong := [token for token in tokens if token not in chat.free_tokens]:
        raise ModelError(
            "chat.content_tokens has what data may not contain as a token",
            got=", ".join(map(repr, wrong)),
            expected="special tokens that neither the chat template writes nor a turn ends by: "
            + (", ".join(chat.free_tokens) or "this tokenizer has none"),
        )
    return replace(chat, content_tokens=tuple(tokens))


def _made_chat(
    tokenizer: PreTrainedTokenizerBase,
    stop_ids: Sequence[int],
    tool_format: str,
    tool_prompt: Literal["auto", "hermes", "brief"],
    variables: dict[str, Any],
) -> Chat:
    """Return the chat of a model, as what its template shows decides it; the variables are the template's."""
    if tool_format not in ("auto", *FORMATS):
        raise unknown_format(tool_format)
    native = native_format(tokenizer, stop_ids, **variables) if tool_prompt == "auto" else None
    system_role = shows_system(tokenizer, **variables)
    supplied: ToolPrompt | None = None
    if native is None:
        supplied = "hermes" if tool_prompt == "auto" else tool_prompt
        if tool_format not in ("auto", "hermes"):
            raise ModelError(
                "a supplied tool prompt asks for calls in the form 'hermes'",
                got=f"chat.tool_format = {tool_format!r}",
                remedy="leave chat.tool_format out, or use a chat template that shows tools",
            )
    call_format = (native or "hermes") if tool_format == "auto" else tool_format
    return Chat(
        tokenizer,
        tuple(stop_ids),
        call_format,
        supplied,
        system_role,
        orphan_tool_messages=native is None or takes_orphan_tool_messages(tokenizer, **variables),
        separate_reasoning=takes_separate_reasoning(tokenizer, call_format, **variables),
        template_kwargs=variables,
    )
