"""What a chat template supports: system messages, tools, the format of its calls, separate reasoning.

Each is found by rendering a short conversation with known words.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from truing.chat.apply_template import apply_template
from truing.chat.call_parser import detect_format
from truing.chat.reasoning import reasoning_tags, split_reasoning, without_opened_reasoning
from truing.errors import DataError
from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec, tool_message

PROBE_TOOL = ToolSpec(
    "truing_probe", "A probe.", {"type": "object", "properties": {"word": {"type": "string"}}}
)
"""A tool that is easy to find in a rendered prompt."""

PROBE_QUESTION = ({"role": "user", "content": "hello"},)
PROBE_CALL = AssistantMessage(calls=(ToolCall(PROBE_TOOL.name, {"word": "truing"}),))

PROBE_ANSWER = "7358113"
"""The tool's answer: a number, which templates render unchanged."""


def shows_system(tokenizer: PreTrainedTokenizerBase, **variables: Any) -> bool:
    """Whether a template shows a system message: some reject it (Gemma), others drop it silently."""
    system: Message = {"role": "system", "content": PROBE_TOOL.name}
    try:
        return PROBE_TOOL.name in apply_template(
            tokenizer, [system, *PROBE_QUESTION], (), prompt=True, **variables
        )
    except DataError:
        return False


def takes_orphan_tool_messages(tokenizer: PreTrainedTokenizerBase, **kwargs: Any) -> bool:
    """Whether a template renders tool messages after turns without a call: Mistral's and gpt-oss's do not."""
    turn = [
        AssistantMessage(PROBE_TOOL.name).to_dict(),
        tool_message(ToolCall("error", {}), 0, PROBE_TOOL.name),
    ]
    try:
        apply_template(tokenizer, [*PROBE_QUESTION, *turn, *turn], (PROBE_TOOL,), prompt=True, **kwargs)
    except DataError:
        return False
    return True


def takes_separate_reasoning(tokenizer: PreTrainedTokenizerBase, tool_format: str, **variables: Any) -> bool:
    """Whether a template renders ``reasoning_content`` once, and no reasoning within content."""
    opening, closing = reasoning_tags(tool_format)
    message = AssistantMessage(f"{opening}\n{PROBE_ANSWER}\n{closing}\n\n{PROBE_TOOL.name}").to_dict()
    forms = ([message], split_reasoning([message], tool_format))
    try:
        base = apply_template(tokenizer, PROBE_QUESTION, (), prompt=False, **variables).count(opening)
        texts = [
            apply_template(tokenizer, [*PROBE_QUESTION, *form], (), prompt=False, **variables)
            for form in forms
        ]
    except DataError:
        return False
    in_content, in_field = (PROBE_ANSWER in text and text.count(opening) == base + 1 for text in texts)
    return in_field and not in_content


def native_format(
    tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int], **variables: Any
) -> str | None:
    """Return a template's call format; None if it shows no tools, or drops calls or their answers."""
    write = partial(apply_template, tokenizer, tools=(PROBE_TOOL,), **variables)
    try:
        prompt = write(PROBE_QUESTION, prompt=True)
        conversation = write([*PROBE_QUESTION, PROBE_CALL.to_dict()], prompt=False)
        answer = tool_message(PROBE_CALL.calls[0], 0, PROBE_ANSWER)
        answered = write([*PROBE_QUESTION, PROBE_CALL.to_dict(), answer], prompt=True)
    except DataError:
        return None
    # reasoning that the prompt opens is not part of the call, though both may begin with "<"
    call_text = conversation[common_prefix_length(without_opened_reasoning(prompt), conversation) :].rstrip()
    if PROBE_TOOL.name not in prompt or PROBE_TOOL.name not in call_text or PROBE_ANSWER not in answered:
        return None
    for stop in tokenizer.convert_ids_to_tokens(list(stop_ids)):
        call_text = call_text.removesuffix(stop)
    return detect_format(call_text, PROBE_CALL.calls[0], (PROBE_TOOL,)) or "unknown"


def common_prefix_length(a: str, b: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
