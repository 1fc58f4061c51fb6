"""Rows of plain text, for language modelling: TRL trains all their tokens that have a context."""

from collections.abc import Sequence
from typing import Any

from truing.trl.data import Row


def text_demonstrations(rows: Sequence[Row], column: str, tokenizer: Any) -> list[Row]:
    """Return texts as prompt and completion: what the first trained token follows, and the rest.

    The context is the BOS token if the tokenizer writes one, which the template adds to an empty prompt;
    else it is the first token, as TRL predicts no token without a context. TRL ends a text with EOS.

    Args:
        rows: with a text in ``column``.
        column: the name of the column.
        tokenizer: of the model.
    """
    texts = [row[column].removesuffix(tokenizer.eos_token) for row in rows]
    begins = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    starts = [0 if begins else _context_end(text, tokenizer) for text in texts]
    return [
        {"prompt": text[:start], "completion": text[start:]}
        for text, start in zip(texts, starts, strict=True)
    ]


def _context_end(text: str, tokenizer: Any) -> int:
    """Return where the first token ends, or a later one if the rest alone would have other tokens."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    for count, (_, end) in enumerate(encoded["offset_mapping"], start=1):
        parts = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in (text[:end], text[end:]))
        if [*parts] == [ids[:count], ids[count:]]:
            return end
    return len(text)
