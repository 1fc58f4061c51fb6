"""The bytes of each id, from the vocabulary: decoding would lose incomplete characters."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from truing.errors import ModelError

BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}
NOT_A_CHARACTER = {0xDC00 + byte: 0xFFFD for byte in range(0x80, 0x100)}
ONE_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def token_bytes(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[bytes]:
    """Return the exact bytes of each id, special tokens included; empty for ids outside the tokenizer.

    They join to the text of ``tokenizer.decode``, except that Llama 2's tokenizers drop the first space of a
    text.
    """
    spell = _speller(tokenizer)
    added_tokens = tokenizer.added_tokens_decoder
    bytes_by_id = {id: spell(token, id in added_tokens) for id, token in _tokens(tokenizer, ids)}
    return [bytes_by_id[id] for id in ids]


def escape(pieces: Sequence[bytes]) -> str:
    """Return the text of bytes, with one escaped character for each byte outside any character.

    So characters map to bytes.
    """
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def readable(escaped: str) -> str:
    """Return the text in storable form: U+FFFD for each escaped byte."""
    return escaped.translate(NOT_A_CHARACTER)


def _tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[tuple[int, str]]:
    """Yield each distinct id with its token; a model's rows beyond the vocabulary have none."""
    distinct = list(dict.fromkeys(ids))
    return [
        (id, token or "")
        for id, token in zip(distinct, tokenizer.convert_ids_to_tokens(distinct), strict=True)
    ]


def _speller(tokenizer: PreTrainedTokenizerBase) -> Callable[[str, bool], bytes]:
    """Return how this tokenizer spells bytes in its vocabulary, from its decoder."""
    decoder = cast("PreTrainedTokenizerFast", tokenizer).backend_tokenizer.decoder
    state: dict[str, Any] = {"type": "none"} if decoder is None else json.loads(decoder.__getstate__())
    kinds = {part["type"] for part in state.get("decoders", [state])}
    if "ByteLevel" in kinds:
        return _byte_level
    if kinds & {"ByteFallback", "Metaspace"}:
        return _sentence_piece
    raise ModelError(
        "the bytes of this tokenizer's tokens are unknown",
        got=f"a decoder of {sorted(kinds)}",
        expected="ByteLevel, or SentencePiece with byte fallback",
    )


def _byte_level(token: str, added: bool) -> bytes:
    """Return the bytes of a token with a letter per byte; other tokens are plain text."""
    if added or not BYTE_OF.keys() >= set(token):
        return token.encode()
    return bytes(BYTE_OF[letter] for letter in token)


def _sentence_piece(token: str, added: bool) -> bytes:
    """Return the bytes of a token with ``▁`` for a space and ``<0x0A>`` for a byte without its own token."""
    match = ONE_BYTE.fullmatch(token)
    return bytes.fromhex(match[1]) if match and not added else token.replace("▁", " ").encode()
