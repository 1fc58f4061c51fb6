"""`tiny`: bytes in, bytes out, the same weights for the same seed, and it learns."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from truing.models import tiny
from truing.models.builtin import BUILTIN_MODELS
from truing.models.digest import digest

TOKENIZER = tiny.byte_tokenizer()


@given(st.text())
def test_ids_are_utf8_bytes_and_decode_back(text):
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert ids == list(text.encode())
    assert TOKENIZER.decode(ids) == text


def test_every_byte_has_its_own_id(tiny_folder):
    saved = AutoTokenizer.from_pretrained(tiny_folder)
    assert [saved.decode([byte]) for byte in range(128)] == [chr(byte) for byte in range(128)]
    assert saved.convert_tokens_to_ids([tiny.BEGIN, tiny.END, tiny.PAD]) == [256, 257, 258]
    assert (saved.eos_token_id, saved.pad_token_id, len(saved)) == (257, 258, 259)


def test_special_tokens_in_text_are_single_ids():
    assert TOKENIZER("<|im_start|>a<|im_end|>", add_special_tokens=False)["input_ids"] == [256, 97, 257]


def test_template_is_chatml_without_a_system_message(tiny_folder):
    saved = AutoTokenizer.from_pretrained(tiny_folder)
    text = saved.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = digest(tiny.tiny_model(1).state_dict())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert digest(tiny.tiny_model(1).state_dict()) == first
    assert digest(tiny.tiny_model(2).state_dict()) != first


def test_it_is_as_large_as_listed():
    assert sum(p.numel() for p in tiny.tiny_model().parameters()) == BUILTIN_MODELS["tiny"].parameters


def test_it_learns_a_sentence_in_thirty_steps():
    model = tiny.tiny_model()
    ids = torch.tensor([TOKENIZER("the answer is 42<|im_end|>", add_special_tokens=False)["input_ids"]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(30):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1  # ln 259 = 5.6 at the start
