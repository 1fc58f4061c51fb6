"""The bytes of each id, read from the vocabulary: decoding and encoding again would lose them."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from truing.errors import ModelError

BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}
NOT_A_CHARACTER = {0xDC00 + byte: 0xFFFD for byte in range(0x80, 0x100)}
ONE_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def token_bytes(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[bytes]:
    """The exact bytes of each id, special tokens included; an id that the tokenizer lacks has none.

    They join to what ``tokenizer.decode`` gives, except that tokenizers of Llama 2's kind drop the first
    space of a text, which the token has.
    """
    spell = _speller(tokenizer)
    added = tokenizer.added_tokens_decoder
    known = {id: spell(token, id in added) for id, token in _tokens(tokenizer, ids)}
    return [known[id] for id in ids]


def escaped(pieces: Sequence[bytes]) -> str:
    """The text of those bytes, with one escaped character for each byte that is part of none.

    Characters and bytes so stay in step.
    """
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def readable(escaped: str) -> str:
    """The same text as it can be stored: U+FFFD for each escaped byte."""
    return escaped.translate(NOT_A_CHARACTER)


def _tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[tuple[int, str]]:
    """Each distinct id with its token; models have rows beyond the vocabulary, and those say nothing."""
    distinct = list(dict.fromkeys(ids))
    return [
        (id, token or "")
        for id, token in zip(distinct, tokenizer.convert_ids_to_tokens(distinct), strict=True)
    ]


def _speller(tokenizer: PreTrainedTokenizerBase) -> Callable[[str, bool], bytes]:
    """How this tokenizer spells bytes in its vocabulary, as its decoder says."""
    decoder = tokenizer.backend_tokenizer.decoder
    stated: dict[str, Any] = {"type": "none"} if decoder is None else json.loads(decoder.__getstate__())
    kinds = {part["type"] for part in stated.get("decoders", [stated])}
    if "ByteLevel" in kinds:
        return _byte_level
    if kinds & {"ByteFallback", "Metaspace"}:
        return _sentence_piece
    raise ModelError(
        "the bytes of this tokenizer's tokens cannot be told",
        got=f"a decoder of {sorted(kinds)}",
        expected="ByteLevel, or SentencePiece with byte fallback",
    )


def _byte_level(token: str, added: bool) -> bytes:
    """A letter for each byte; added tokens, and the few that no bytes could spell, are plain text."""
    if added or not BYTE_OF.keys() >= set(token):
        return token.encode()
    return bytes(BYTE_OF[letter] for letter in token)


def _sentence_piece(token: str, added: bool) -> bytes:
    """``▁`` for a space and ``<0x0A>`` for a byte that has no token of its own."""
    one = ONE_BYTE.fullmatch(token)
    return bytes.fromhex(one[1]) if one and not added else token.replace("▁", " ").encode()
