"""Scaffolding found in sampled ids."""

import random

import pytest
import torch
from transformers import AutoTokenizer

from truing.chat.call_syntax import read_turn_with_tools
from truing.chat.token_bytes import token_bytes
from truing.types.message import ToolCall

END = 257  # <|im_end|> of the tiny tokenizer, whose other ids are bytes
TEXT = "é🙂."  # SmolLM2 has a token of a dot and a quote
CALL = f'<tool_call>\n{{"name": "say", "arguments": {{"text": "{TEXT}", "n": 1}}}}\n</tool_call>'


def chosen(text, *values):
    """For each byte, whether it is scaffolding: all but the values, each of which occurs once."""
    raw, mask = text.encode(), [True] * len(text.encode())
    for value in map(str.encode, values):
        start = raw.index(value)
        mask[start : start + len(value)] = [False] * len(value)
    return mask


def test_every_byte_of_a_call_is_distinguished(tiny):
    ids = torch.tensor([*b"So. ", *CALL.encode(), END])
    reading = read_turn_with_tools(tiny.tokenizer, ids, [END], "hermes")
    assert reading.text == f"So. {CALL}"
    assert reading.message.content == "So. "
    assert reading.message.calls == (ToolCall("say", {"text": TEXT, "n": 1}),)
    assert reading.structure.tolist() == [False] * 4 + chosen(CALL, "say", TEXT, "1") + [False]


def test_a_stop_token_within_the_turn_is_text(tiny):
    reading = read_turn_with_tools(tiny.tokenizer, torch.tensor([END, *CALL.encode()]), [END], "hermes")
    assert reading.text == f"<|im_end|>{CALL}"
    assert reading.structure.tolist() == [False, *chosen(CALL, "say", TEXT, "1")]


@pytest.mark.parametrize("stray", [b"\xff", b"\xc3", b"\xf0\x9f\x99", b"\x80\x80"])
def test_stray_bytes_shift_nothing(tiny, stray):
    before, value = [*stray], stray.decode("utf-8", "surrogateescape")
    raw = CALL.replace(TEXT, value).encode("utf-8", "surrogateescape")
    reading = read_turn_with_tools(tiny.tokenizer, torch.tensor([*before, *raw]), [END], "hermes")
    assert reading.message.calls == (ToolCall("say", {"text": "\ufffd" * len(stray), "n": 1}),)
    expected = chosen(CALL.replace(TEXT, "~" * len(stray)), "say", "~" * len(stray), "1")
    assert reading.structure.tolist() == [False] * len(stray) + expected
    reading.text.encode()  # can be stored


def test_a_malformed_call_has_no_scaffolding(tiny):
    reading = read_turn_with_tools(tiny.tokenizer, torch.tensor([*CALL[:-3].encode()]), [END], "hermes")
    assert len(reading.message.parse_errors) == 1
    assert not reading.structure.any()


@pytest.mark.parametrize("ids", [[], [END]])
def test_a_turn_that_says_nothing(tiny, ids):
    reading = read_turn_with_tools(tiny.tokenizer, torch.tensor(ids, dtype=torch.int64), [END], "hermes")
    assert (reading.text, reading.structure.tolist()) == ("", [False] * len(ids))


def test_a_row_beyond_the_vocabulary_is_the_models_choice(tiny):
    raw = CALL.encode()
    reading = read_turn_with_tools(tiny.tokenizer, torch.tensor([*raw[:5], 300, *raw[5:]]), [END], "hermes")
    assert reading.text == CALL
    mask = chosen(CALL, "say", TEXT, "1")
    assert reading.structure.tolist() == [*mask[:5], False, *mask[5:]]


def test_a_tag_that_is_one_token_is_scaffolding_and_a_straddling_token_is_not(data):
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizers" / "minimind")
    ids = torch.tensor(tokenizer(CALL, add_special_tokens=False)["input_ids"])
    structure = read_turn_with_tools(tokenizer, ids, [], "hermes").structure
    result = dict(zip(tokenizer.convert_ids_to_tokens(ids), structure.tolist(), strict=True))
    assert result["<tool_call>"]
    assert result["</tool_call>"]
    pieces = token_bytes(tokenizer, ids.tolist())
    expected, at = [], 0
    mask = chosen(CALL, "say", TEXT, "1")
    for piece in pieces:
        expected.append(all(mask[at : at + len(piece)]))
        at += len(piece)
    assert structure.tolist() == expected


@pytest.mark.parametrize("name", ["smollm2", "minimind"])
def test_any_split_of_the_text_has_its_own_mask(data, name):
    """Another split than the tokenizer's own, as a policy may well sample it."""
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizers" / name)
    mask, source = chosen(CALL, "say", TEXT, "1"), random.Random(0)
    spelled = token_bytes(tokenizer, range(len(tokenizer)))
    by_bytes = {piece: id for id, piece in enumerate(spelled) if piece}
    straddling = 0
    for _ in range(100):
        ids, expected, at, raw = [], [], 0, CALL.encode()
        while at < len(raw):
            lengths = [n for n in range(1, 13) if raw[at : at + n] in by_bytes and at + n <= len(raw)]
            n = source.choice(lengths)
            ids.append(by_bytes[raw[at : at + n]])
            expected.append(all(mask[at : at + n]))
            straddling += any(mask[at : at + n]) and not all(mask[at : at + n])
            at += n
        reading = read_turn_with_tools(tokenizer, torch.tensor(ids), [], "hermes")
        assert reading.structure.tolist() == expected
    assert straddling > 10
