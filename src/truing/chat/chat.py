"""How a model is spoken to: its tokenizer, what ends a turn, and how its template takes tools."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jinja2
from transformers import PreTrainedTokenizerBase

from truing.chat.calls import FORMATS, OPEN_THOUGHT, detect
from truing.chat.tool_prompt import ToolPrompt, with_tool_prompt
from truing.errors import DataError, ModelError
from truing.messages import Message, Said, ToolCall, ToolSpec

SENTINEL = ToolSpec(
    "truing_probe", "A probe.", {"type": "object", "properties": {"word": {"type": "string"}}}
)
"""A tool that is easy to find again in a rendered prompt."""

ASKED = ({"role": "user", "content": "hello"},)
CALLED = Said(calls=(ToolCall(SENTINEL.name, {"word": "truing"}),))


@dataclass(frozen=True, eq=False)
class Chat:
    """One value that SFT, RL, evaluation and export render with, so that they cannot differ."""

    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    tool_format: str  # how this model writes a call: a name from the table in chat/calls.py
    tool_prompt: ToolPrompt | None  # supplied by Truing; None where the template shows tools itself
    json_arguments: bool  # whether the template takes the arguments of a call as the text of JSON

    def text(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, prompt: bool = True
    ) -> str:
        """What the model's own template makes of messages, up to where the assistant begins (``prompt``)."""
        if self.tool_prompt is not None:
            messages, tools = with_tool_prompt(messages, tools, self.tool_prompt), ()
        elif self.json_arguments:
            messages = [_with_json_arguments(message) for message in messages]
        return rendered(self.tokenizer, messages, tools, prompt=prompt)

    @property
    def stops(self) -> tuple[str, ...]:
        """The text of each stop id."""
        return tuple(self.tokenizer.convert_ids_to_tokens(list(self.stop_ids)))


def make_chat(
    tokenizer: PreTrainedTokenizerBase,
    stop_ids: Sequence[int],
    *,
    tool_format: str = "auto",
    tool_prompt: Literal["auto", "hermes", "brief"] = "auto",
) -> Chat:
    """Learn from a model's template whether it shows tools and how it writes calls.

    Args:
        tokenizer: with a chat template.
        stop_ids: what ends a turn.
        tool_format: a name from the table in chat/calls.py; "auto" asks the template.
        tool_prompt: "auto" leaves tools to a template that shows them and supplies "hermes" to others;
            a name supplies that one in any case.
    """
    native = native_format(tokenizer, stop_ids) if tool_prompt == "auto" else None
    if native is not None:
        found, json_arguments = native
        known = found if tool_format == "auto" else tool_format
        return Chat(tokenizer, tuple(stop_ids), _known(known), None, json_arguments)
    supplied = "hermes" if tool_prompt == "auto" else tool_prompt
    if tool_format not in ("auto", "hermes"):
        raise ModelError(
            "a supplied tool prompt asks for calls in the form 'hermes'",
            got=f"chat.tool_format = {tool_format!r}",
            remedy="leave chat.tool_format out, or use a chat template that shows tools",
        )
    return Chat(tokenizer, tuple(stop_ids), "hermes", supplied, json_arguments=False)


def native_format(tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int]) -> tuple[str, bool] | None:
    """How a template writes calls, and whether it takes their arguments as the text of JSON.

    None where it shows no tools, or drops the calls of an assistant.
    """
    stops = tokenizer.convert_ids_to_tokens(list(stop_ids))
    message = CALLED.message()
    forms = {False: message, True: _with_json_arguments(message)}
    written = {as_json: _written(tokenizer, form, stops) for as_json, form in forms.items()}
    if not any(written.values()):
        return None
    read = [(detect(text, CALLED.calls[0]), as_json) for as_json, text in written.items()]
    return next(((format, as_json) for format, as_json in read if format), ("unknown", False))


def _written(tokenizer: PreTrainedTokenizerBase, call: Message, stops: Sequence[str]) -> str:
    """What a template writes for the message of a call; nothing where it shows no tools or refuses."""
    try:
        shown = rendered(tokenizer, ASKED, (SENTINEL,), prompt=True)
        called = rendered(tokenizer, [*ASKED, call], (SENTINEL,), prompt=False)
    except DataError:
        return ""
    # a thought that the prompt opens is no part of the call, though both may begin with "<"
    writes = called[agree(OPEN_THOUGHT.sub("", shown), called) :].rstrip()
    if SENTINEL.name not in shown or SENTINEL.name not in writes:
        return ""
    for stop in stops:
        writes = writes.removesuffix(stop)
    return writes


def rendered(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    *,
    prompt: bool,
) -> str:
    """The text that a tokenizer's own template makes of messages."""
    try:
        return tokenizer.apply_chat_template(
            list(messages),
            tools=[tool.schema() for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=prompt,
        )
    except (jinja2.TemplateError, TypeError) as error:  # TypeError: a template that adds text to a None
        raise DataError(
            "the chat template refuses these messages",
            got=f"roles {[message.get('role') for message in messages]}: {error}",
            remedy="change the roles of the task's messages, or set model.chat_template",
        ) from error


def _with_json_arguments(message: Message) -> Message:
    """The message with the arguments of each call as the text of a JSON object."""
    if "tool_calls" not in message:
        return message
    functions = [
        {**call["function"], "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False)}
        for call in message["tool_calls"]
    ]
    pairs = zip(message["tool_calls"], functions, strict=True)
    return {**message, "tool_calls": [{**call, "function": function} for call, function in pairs]}


def _known(tool_format: str) -> str:
    """A format that can be parsed, or an error that says which can."""
    if tool_format not in FORMATS:
        raise ModelError(
            "it is not known how this model's template writes tool calls",
            got=f"format {tool_format!r}",
            expected=f"one of {', '.join(FORMATS)}",
            remedy='set chat.tool_format, or chat.tool_prompt = "hermes" to have Truing supply the prompt',
        )
    return tool_format


def agree(a: str, b: str) -> int:
    """How many characters two texts have in common from their start."""
    both = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in both if x != y), min(len(a), len(b)))
