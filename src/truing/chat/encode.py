"""Text to ids, as a piece of a longer text that is not encoded again."""

from transformers import PreTrainedTokenizerBase

from truing.chat.token_bytes import token_bytes

Span = tuple[int, int]
"""Start and end in a text, in characters."""

ANCHOR = "\n"
"""What a piece is encoded behind where the tokenizer would take it for the beginning of a text."""


def encode_after(tokenizer: PreTrainedTokenizerBase, before: str, text: str) -> tuple[list[int], list[Span]]:
    """The ids of a text that follows ``before``, and the span of ``text`` that each stands for.

    The tokenizers of Llama 2 and Mistral 7B put a space before whatever they take for a beginning. Within
    a text nobody wrote that space: the piece is then encoded behind an anchor, whose ids are taken off.
    Behind an added token that ``before`` ends in, the piece is encoded as the tokenizer has it there.

    Args:
        tokenizer: adds no special tokens itself: the template writes BOS where the model wants one.
        before: what was encoded earlier; empty where the text begins the sequence.
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
