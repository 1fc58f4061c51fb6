"""Which sampled tokens are syntax of a tool call.

The text is the join of the bytes of the sampled ids, so the characters of the parsed calls map back to ids.
Nothing is encoded again: another tokenization of the same text would mask other tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from truing.chat.call_parser import parse_calls
from truing.chat.token_bytes import escape, readable, token_bytes
from truing.types.message import AssistantMessage, ToolSpec


@dataclass(frozen=True, eq=False)
class ParsedTurn:
    """A parsed turn."""

    text: str  # without the stop token; a byte outside any character reads as U+FFFD
    message: AssistantMessage
    structure: Tensor  # [L] bool


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
