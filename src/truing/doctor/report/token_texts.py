"""Texts of single tokens, for reports."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from truing.errors import ModelError, RecordError
from truing.record import RunReader

Decode = Callable[[Sequence[int]], list[str]]
"""Maps ids to the text of each alone, including special tokens."""


def token_decoder(tokenizer: Any) -> Decode:
    """Return the texts by a tokenizer of transformers."""
    return lambda ids: [tokenizer.decode([i], clean_up_tokenization_spaces=False) for i in ids]


def run_decoder(run: Path) -> Decode:
    """Return the texts by the tokenizer of run.json: a path, also within the run, or a hub id."""
    named = RunReader(run).run_json().get("tokenizer")
    if named is None:
        raise RecordError(f"run.json of {run} names no tokenizer", expected="a path or hub id")
    from transformers import AutoTokenizer  # here, because the board and `tail` start without it

    within = run / named
    source = within if within.exists() else named
    try:
        return token_decoder(AutoTokenizer.from_pretrained(source, trust_remote_code=False))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot load the tokenizer of {run}", got=error, expected=source) from error
