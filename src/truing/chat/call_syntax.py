"""Parse a turn: its text, its calls, and which of its sampled tokens are syntax of a tool call.

The text is the join of the bytes of the sampled ids, so the characters of the parsed calls map back to ids.
Nothing is encoded again: another tokenization of the same text would mask other tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from truing.chat.call_parser import FORMATS, parse_calls
from truing.chat.chat import Chat
from truing.chat.dialogue import Dialogue
from truing.chat.reasoning import opened_reasoning
from truing.chat.render import decode_reply
from truing.chat.token_bytes import escape, readable, token_bytes
from truing.types.message import AssistantMessage, ToolSpec


@dataclass(frozen=True, eq=False)
class ParsedTurn:
    """A parsed turn."""

    text: str  # without the stop token; a byte outside any character reads as U+FFFD
    message: AssistantMessage
    structure: Tensor  # [L] bool


def read_turn(
    chat: Chat, dialogue: Dialogue, forced: Tensor, sampled: Tensor
) -> tuple[AssistantMessage, Tensor]:
    """Parse a turn of prefilled ids [F] and sampled ids [L].

    Returns:
        The message, with its calls if the task has tools, and [L] bool: call syntax among the sampled ids.
    """
    ids = torch.cat([forced, sampled])
    if not dialogue.tools:
        content = FORMATS[chat.tool_format].content if chat.tool_format in FORMATS else str
        return AssistantMessage(content(decode_reply(chat, ids))), torch.zeros(len(sampled), dtype=torch.bool)
    parsed = read_turn_with_tools(
        chat.tokenizer,
        ids,
        chat.stop_ids,
        chat.tool_format,
        dialogue.tools,
        thinking=opened_reasoning(dialogue.text, chat.tool_format) != "",
    )
    return parsed.message, parsed.structure[len(forced) :]


def read_turn_with_tools(
    tokenizer: PreTrainedTokenizerBase,
    token_ids: Tensor,
    stop_ids: Sequence[int],
    format: str,
    tools: Sequence[ToolSpec] = (),
    *,
    thinking: bool = False,
) -> ParsedTurn:
    """Parse a turn from its sampled ids [L].

    A token is call syntax if all of its bytes are. A token with part of a name or value is the model's
    choice, and so is the stop token.
    """
    ids = token_ids.tolist()
    pieces = token_bytes(tokenizer, ids[:-1] if ids and ids[-1] in stop_ids else ids)
    escaped_text = escape(pieces)
    text = readable(escaped_text)
    parsed = parse_calls(text, format, tools, thinking=thinking)
    edges = np.cumsum([0, *map(len, pieces)])
    inside = np.zeros(edges[-1] + 1, dtype=np.int64)
    for start, end in _byte_spans(escaped_text, parsed.scaffolding):
        inside[start + 1 : end + 1] = 1
    structure_bytes = np.cumsum(inside)[edges]
    structure = torch.zeros(len(ids), dtype=torch.bool)
    is_structure = (np.diff(structure_bytes) == np.diff(edges)) & (np.diff(edges) > 0)
    structure[: len(pieces)] = torch.from_numpy(is_structure)
    return ParsedTurn(text, parsed.message, structure)


def _byte_spans(escaped_text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of characters as spans of bytes; the spans are in order and disjoint."""
    byte_spans, character, byte = [], 0, 0
    for start, end in spans:
        first = byte + _size(escaped_text[character:start])
        character, byte = end, first + _size(escaped_text[start:end])
        byte_spans.append((first, byte))
    return byte_spans


def _size(escaped_text: str) -> int:
    """Return the number of bytes of those characters."""
    return len(escaped_text.encode("utf-8", "surrogateescape"))
