import random

import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from truing.chat.token_bytes import token_bytes
from truing.errors import ModelError


def draws(size, seed=0):
    """Ids without sense, some of them beyond the vocabulary, as a model's padded rows are."""
    source = random.Random(seed)
    return [[source.randrange(size + 50) for _ in range(source.randint(0, 40))] for _ in range(300)]


@pytest.mark.parametrize("name", ["smollm2", "minimind"])
def test_bytes_join_to_what_a_real_tokenizer_decodes(data, name):
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizers" / name)
    for ids in draws(len(tokenizer)):
        text = b"".join(token_bytes(tokenizer, ids)).decode("utf-8", "replace")
        assert text == tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    for id, piece in enumerate(token_bytes(tokenizer, range(len(tokenizer)))):
        assert piece.decode("utf-8", "replace") == tokenizer.decode([id], clean_up_tokenization_spaces=False)


def test_half_a_character_keeps_its_bytes(tiny):
    assert token_bytes(tiny.tokenizer, [0xC3, 0xA9, 0xFF, 256]) == [
        b"\xc3",
        b"\xa9",
        b"\xff",
        b"<|im_start|>",
    ]


def test_an_added_token_is_plain_text(tiny):
    tiny.tokenizer.add_tokens(["<töol call>"])
    assert token_bytes(tiny.tokenizer, [259]) == ["<töol call>".encode()]


def test_a_token_that_no_bytes_could_spell_is_plain_text():
    tokenizer = with_decoder(decoders.ByteLevel())
    assert token_bytes(tokenizer, [4, 5]) == ["▁a".encode(), b"b"]
    assert tokenizer.decode([4, 5]) == "▁ab"


def test_no_ids_have_no_bytes(tiny):
    assert token_bytes(tiny.tokenizer, []) == []


def with_decoder(decoder):
    vocabulary = {"<unk>": 0, "<0xC3>": 1, "<0xA9>": 2, "▁": 3, "▁a": 4, "b": 5}
    backend = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_sentence_piece_spells_spaces_and_bytes():
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = with_decoder(decoder)
    ids = [4, 1, 2, 3, 5]
    assert token_bytes(tokenizer, ids) == [b" a", b"\xc3", b"\xa9", b" ", b"b"]
    assert b"".join(token_bytes(tokenizer, ids)).decode() == tokenizer.decode(ids) == " aé b"


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece()])
def test_another_spelling_is_refused(decoder):
    with pytest.raises(ModelError, match="are unknown"):
        token_bytes(with_decoder(decoder), [5])
