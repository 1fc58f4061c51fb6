"""The embedded SmolLM2, fetched where it is not cached: its ids are those that it was trained on."""

import json

import pytest
from tokenizers import Tokenizer

from truing.models import builtin
from truing.models.load import load, load_tokenizer

TEXTS = [
    "a  1",
    "x\n\n  12 345",
    "½ ² ٣٤",
    "1,234.5 and\t67",
    " leading",
    "trailing  ",
    "é世界",
    "<|im_start|>user\n",
]


@pytest.fixture(scope="module")
def folder():
    return builtin.ensure_built("smollm2-135m")


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(folder)


@pytest.mark.slow
def test_spaces_before_a_digit_stay_together_and_digits_apart(tokenizer):
    # Read off the original tokenizer.json; GPT-2's way of cutting would give [81, 216, 216, 33].
    assert tokenizer("a  1")["input_ids"] == [81, 256, 33]
    assert tokenizer("12345")["input_ids"] == [33, 34, 35, 36, 37]


def test_ids_are_those_of_the_original_tokenizer(published, tokenizer):
    original = Tokenizer.from_file(str(published / "tokenizers" / "smollm2" / "tokenizer.json"))
    assert [tokenizer(text)["input_ids"] for text in TEXTS] == [original.encode(text).ids for text in TEXTS]


def test_golden_conversations(published, tokenizer):
    lines = (published / "chat_templates" / "golden_rendered_tokenized.jsonl").read_text().splitlines()
    goldens = [row for row in map(json.loads, lines) if row["family"] == "smollm2"]
    assert len(goldens) == 8
    for row in goldens:
        text = tokenizer.apply_chat_template(
            row["messages"], tokenize=False, add_generation_prompt=row["add_generation_prompt"]
        )
        assert text == row["text"], row["id"]
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == row["input_ids"], row["id"]


@pytest.mark.slow
def test_facts_of_a_run_are_reported(folder):
    loaded = load("smollm2-135m", device="cpu")
    assert loaded.path == folder
    # Its pad is its stop: <|im_end|>. Its BOS is <|im_start|>, which opens each turn.
    assert (loaded.stop_ids, loaded.pad_id, loaded.tokenizer.bos_token_id) == ((2,), 2, 1)
    assert loaded.context_length == 8192
    assert loaded.model.generation_config.eos_token_id == 2
    assert (
        sum(p.numel() for p in loaded.model.parameters()) == builtin.BUILTIN_MODELS["smollm2-135m"].parameters
    )
    assert loaded.model.get_input_embeddings().weight is loaded.model.get_output_embeddings().weight


@pytest.mark.slow
def test_it_knows_the_capital_of_france(folder):
    loaded = load("smollm2-135m", device="cpu")
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = loaded.tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = loaded.model.generate(**prompt, max_new_tokens=12, do_sample=False)
    assert loaded.tokenizer.decode(answer[0]).endswith("The capital of France is Paris.<|im_end|>")
