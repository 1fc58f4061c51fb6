"""Rendering of messages by the chat template of a tokenizer, and the variables that a template reads."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from truing.errors import DataError, ModelError
from truing.types.message import Message, ToolSpec
from truing.utils.render_template import TemplateFault, render_template


def apply_template(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    *,
    prompt: bool,
    **template_kwargs: Any,
) -> str:
    """Return messages rendered by a tokenizer's template."""
    try:
        return render_template(
            tokenizer,
            messages,
            tools=[tool.schema() for tool in tools] or None,
            add_generation_prompt=prompt,
            **template_kwargs,
        )
    except TemplateFault as error:
        named_tools = ", tools " + ", ".join(tool.name for tool in tools) if tools else ""
        raise DataError(
            "the chat template refuses these messages",
            got=f"roles {[message.get('role') for message in messages]}{named_tools}: {error}",
            remedy="change the roles of the task's messages or the schemas of its tools, "
            "or set model.chat_template",
        ) from error


def check_template_kwargs(tokenizer: PreTrainedTokenizerBase, variables: Mapping[str, Any]) -> None:
    """Raise for template variables that the template does not read: they would have no effect."""
    parameters = inspect.signature(tokenizer.apply_chat_template).parameters
    sources = tokenizer.chat_template
    template = sources if isinstance(sources, str) else "".join((sources or {}).values())
    for name in variables:
        if name in parameters or not re.search(rf"\b{re.escape(name)}\b", template):
            raise ModelError(
                "the chat template does not read this variable",
                got=f"chat.template_kwargs.{name} = {variables[name]!r}",
                expected="a variable that the template reads, such as enable_thinking",
                remedy="remove it, or set a model.chat_template that reads it",
            )
