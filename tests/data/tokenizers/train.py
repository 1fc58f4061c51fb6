"""Makes the two small tokenizers of the tests from ``text.txt``: ``python tests/data/tokenizers/train.py``.

``smollm2`` has SmolLM2's shape: digits one by one, no tags of calls among its tokens. ``minimind`` has
MiniMind's: tags of calls and thoughts are tokens that are not special. Chat templates lie beside them.
"""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = [f"<{slash}{tag}>" for tag in ("tool_call", "tool_response", "think") for slash in ("", "/")]
SHAPES = {
    "smollm2": ([pre_tokenizers.Digits(individual_digits=True)], [], "<|im_end|>"),
    "minimind": ([], TAGS, "<|endoftext|>"),
}

for name, (before, tags, pad) in SHAPES.items():
    backend = Tokenizer(models.BPE())
    cuts = [*before, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, initial_alphabet=alphabet)
    backend.train([str(HERE / "text.txt")], trainer)
    backend.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token=pad
    )
    tokenizer.save_pretrained(HERE / name)
