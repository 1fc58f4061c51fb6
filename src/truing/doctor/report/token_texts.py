"""Texts of single tokens, for reports."""

import os
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
    """Return the texts by the tokenizer in the run directory."""
    return token_decoder(run_tokenizer(run))


def run_tokenizer(run: Path) -> Any:
    """Return the tokenizer in the run directory, of transformers."""
    named = RunReader(run).run_json().get("tokenizer")
    if not isinstance(named, str):
        raise RecordError(f"run.json of {run} names no tokenizer", expected="a folder of the run directory")
    source = Path(os.path.realpath(run / named))
    if not source.is_relative_to(os.path.realpath(run)) or not source.is_dir():
        raise RecordError(
            f"the tokenizer of {run} is not in the run directory",
            got=named,
            expected="the name of a folder there",
            remedy='copy the tokenizer to "tokenizer" in the run directory, and name it in run.json',
        )
    from transformers import AutoTokenizer  # here, because the board and `tail` start without it

    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # transformers and tokenizers raise what they meet
        raise ModelError(f"cannot load the tokenizer of {run}", got=error, expected=source) from error
