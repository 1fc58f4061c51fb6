"""Messages to ids with an origin per token: the one renderer of SFT, RL and evaluation.

A prompt is rendered once by the model's own chat template and tokenised once. What follows (sampled
or demonstrated) extends its ids; nothing is ever decoded and encoded again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import jinja2
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from truing.errors import DataError
from truing.types import Message, Origin


@dataclass(frozen=True, eq=False)
class Prompt:
    """What the policy is shown: P ids, each PROMPT (said by the task) or TEMPLATE (glue)."""

    token_ids: Tensor  # [P] int64
    origin: Tensor  # [P] uint8

    @property
    def hash(self) -> str:
        """Names the prompt by its ids; one group has one hash."""
        return hashlib.sha256(self.token_ids.numpy().tobytes()).hexdigest()[:16]


def render_prompt(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> Prompt:
    """Render messages up to the point where the assistant begins to speak."""
    try:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    except jinja2.TemplateError as error:
        raise DataError(
            "the chat template refuses these messages",
            got=[message.get("role") for message in messages],
            expected=error,
            remedy="change the roles of the task's messages, or set model.chat_template",
        ) from error
    # The template writes BOS itself where the model wants one: adding specials would double it.
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    said = _said(text, [message["content"] for message in messages])
    origin = [
        Origin.PROMPT if any(start < end and a < end and start < b for a, b in said) else Origin.TEMPLATE
        for start, end in encoded["offset_mapping"]
    ]
    return Prompt(torch.tensor(encoded["input_ids"]), torch.tensor(origin, dtype=torch.uint8))


def encode_answer(tokenizer: PreTrainedTokenizerBase, text: str, stop_id: int) -> Tensor:
    """The ids [L] that a policy would sample to say ``text`` and stop."""
    return torch.tensor([*tokenizer(text, add_special_tokens=False)["input_ids"], stop_id])


def decode_answer(tokenizer: PreTrainedTokenizerBase, token_ids: Tensor, stop_ids: Sequence[int]) -> str:
    """The text of an answer without its stop token; for graders and people, never encoded again."""
    ids = token_ids.tolist()
    return tokenizer.decode(ids[:-1] if ids and ids[-1] in stop_ids else ids)


def _said(text: str, contents: Sequence[str]) -> list[tuple[int, int]]:
    """Character spans of the contents within the rendered text, in order.

    >>> _said("<user>hi<end><user> yo <end>", ["hi", " yo "])
    [(6, 8), (19, 23)]
    >>> _said("<user>hi<end>", [" hi "])  # a template that trims
    [(6, 8)]
    """
    spans, cursor = [], 0
    for content in contents:
        for form in (content, content.strip()):
            start = text.find(form, cursor)
            if form and start >= 0:
                cursor = start + len(form)
                spans.append((start, cursor))
                break
    return spans
