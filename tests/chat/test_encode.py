"""Pieces of a text encode to the ids that they have within it."""

import string
from itertools import pairwise

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from truing.chat.encode import encode_after

WHOLE = "<s>[ask] a b [/ask] an answer </s><s>[ask] é\n [/ask]"


@pytest.fixture(scope="module")
def llama2():
    """A tokenizer as Llama 2 has it: a space is put before each text, and bytes stand for what is unknown."""
    letters = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *string.ascii_letters,
        *"[]/",
        "an",
        "▁an",
    ]
    model = models.BPE(
        {letter: i for i, letter in enumerate(letters)},
        [("a", "n"), ("▁", "an")],
        unk_token="<unk>",
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens([AddedToken("<s>", normalized=False), AddedToken("</s>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def test_alone_a_piece_would_have_a_space_that_nobody_wrote(llama2):
    assert llama2.convert_ids_to_tokens(llama2("an", add_special_tokens=False)["input_ids"]) == ["▁an"]


@pytest.mark.parametrize("cuts", [(), (19,), (19, 30), (19, 34), (3, 19, 22, 45)])
def test_pieces_have_the_ids_of_the_whole(llama2, cuts):
    edges = (0, *cuts, len(WHOLE))
    ids, spans = [], []
    for start, end in pairwise(edges):
        piece, places = encode_after(llama2, WHOLE[:start], WHOLE[start:end])
        ids += piece
        spans += [(start + a, start + b) for a, b in places]
    assert ids == llama2(WHOLE, add_special_tokens=False)["input_ids"]
    shown = [WHOLE[a:b] for a, b in spans]
    assert [token for token in shown if token in ("<s>", "</s>")] == ["<s>", "</s>", "<s>"]


def test_tokenizers_that_add_no_space_are_left_alone(tiny):
    ids, spans = encode_after(tiny.tokenizer, "before", " an answer")
    assert ids == tiny.tokenizer(" an answer", add_special_tokens=False)["input_ids"]
    assert (spans[0], spans[-1]) == ((0, 1), (9, 10))
