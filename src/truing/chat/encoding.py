"""Text to ids, as a piece of a longer text that is not encoded again."""

from transformers import PreTrainedTokenizerBase

from truing.chat.token_bytes import token_bytes

Span = tuple[int, int]
"""Start and end in a text, in characters."""

ANCHOR = "\n"
"""What a piece is encoded behind where the tokenizer would take it for the beginning of a text."""


def encode_after(
    tokenizer: PreTrainedTokenizerBase, before: str, text: str, *, plain: bool = False
) -> tuple[list[int], list[Span]]:
    """The ids of a text that follows ``before``, and the span of ``text`` that each stands for.

    The tokenizers of Llama 2 and Mistral 7B put a space before whatever they take for a beginning. Within
    a text nobody wrote that space: the piece is then encoded behind an anchor, whose ids are taken off.

    Args:
        tokenizer: adds no special tokens itself: the template writes BOS where the model wants one.
        before: what was encoded earlier; empty where the text begins the sequence.
        text: what to encode.
        plain: whether special tokens in the text are letters and not control tokens.
    """
    anchor, _ = _encode(tokenizer, ANCHOR, plain)
    adds_space = token_bytes(tokenizer, anchor)[0] == b" "
    if not adds_space or not before or before.endswith(tuple(tokenizer.all_special_tokens)):
        return _encode(tokenizer, text, plain)
    ids, spans = _encode(tokenizer, ANCHOR + text, plain)
    shift = len(ANCHOR)
    return ids[len(anchor) :], [(a - shift, b - shift) for a, b in spans[len(anchor) :]]


def _encode(tokenizer: PreTrainedTokenizerBase, text: str, plain: bool) -> tuple[list[int], list[Span]]:
    encoded = tokenizer(
        text, add_special_tokens=False, split_special_tokens=plain, return_offsets_mapping=True
    )
    return encoded["input_ids"], encoded["offset_mapping"]
