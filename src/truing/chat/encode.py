"""Encode a piece of a longer text without encoding the rest again."""

from transformers import PreTrainedTokenizerBase

from truing.chat.token_bytes import token_bytes

Span = tuple[int, int]
"""Start and end in a text, in characters."""

ANCHOR = "\n"
"""Text before a piece that the tokenizer would treat as the beginning of a text."""


def encode_after(tokenizer: PreTrainedTokenizerBase, before: str, text: str) -> tuple[list[int], list[Span]]:
    """Return the ids of a text that follows ``before``, and the span of ``text`` of each id.

    The tokenizers of Llama 2 and Mistral 7B add a space at the beginning of a text. Within a text that space
    is wrong: the piece is then encoded after an anchor, whose ids are removed. If ``before`` ends in an added
    token, the piece is encoded after that token.

    Args:
        tokenizer: adds no special tokens itself: the template writes BOS.
        before: the text encoded earlier; empty at the beginning of the sequence.
        text: what to encode.
    """
    anchor_ids, _ = _encode(tokenizer, ANCHOR)
    adds_space = token_bytes(tokenizer, anchor_ids)[0] == b" "
    if not adds_space or not before:
        return _encode(tokenizer, text)
    added = (token.content for token in tokenizer.added_tokens_decoder.values())
    anchor = max((token for token in added if before.endswith(token)), key=len, default=ANCHOR)
    anchor_ids, _ = _encode(tokenizer, anchor)
    ids, spans = _encode(tokenizer, anchor + text)
    shift = len(anchor)
    return ids[len(anchor_ids) :], [(a - shift, b - shift) for a, b in spans[len(anchor_ids) :]]


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[Span]]:
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return encoded["input_ids"], encoded["offset_mapping"]
