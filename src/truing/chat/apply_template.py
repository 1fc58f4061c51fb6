"""Rendering of messages by the chat template of a tokenizer, and the variables that a template reads."""

import datetime
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
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


def prompt_date(tokenizer: PreTrainedTokenizerBase, declared: datetime.date | None) -> datetime.date | None:
    """Return the date that the template writes: the declared one, or today's; None if it writes none.

    Raises:
        ModelError: A date is declared, and the template writes none.
    """
    if not unread_variables(tokenizer, ["strftime_now"]):
        return declared or datetime.date.today()
    if declared is not None:
        raise ModelError(
            "the chat template writes no date",
            got=f"chat.date = {declared}",
            expected="a template that calls strftime_now",
            remedy="remove chat.date, or set model.chat_template",
        )
    return None


def check_template_kwargs(
    tokenizer: PreTrainedTokenizerBase,
    variables: Mapping[str, Any],
    template: str | None = None,
    source: str = "chat.template_kwargs",
) -> None:
    """Raise for template variables that the template does not read: they would have no effect.

    Args:
        tokenizer: with the template, unless ``template`` is given.
        variables: their values by name.
        template: another template than the tokenizer's.
        source: where the variables are set, for the error.
    """
    for name in unread_variables(tokenizer, variables, template):
        raise ModelError(
            "the chat template does not read this variable",
            got=f"{source}.{name} = {variables[name]!r}",
            expected="a variable in the source of the template",
            remedy="remove it, or set a model.chat_template that reads it",
        )


def unread_variables(
    tokenizer: PreTrainedTokenizerBase, names: Iterable[str], template: str | None = None
) -> list[str]:
    """Return the names of variables that a template does not read; it is the tokenizer's if not given."""
    parameters = inspect.signature(tokenizer.apply_chat_template).parameters
    own = tokenizer.chat_template
    source = template or (own if isinstance(own, str) else "".join((own or {}).values()))
    return [name for name in names if name in parameters or not re.search(rf"\b{re.escape(name)}\b", source)]
