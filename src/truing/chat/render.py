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
    for message in messages:
        refuse_special_tokens(tokenizer, message["content"])
    text = _render(tokenizer, messages)
    # The template writes BOS itself where the model wants one: adding specials would double it.
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    if not encoded["input_ids"]:
        raise DataError("a prompt has no tokens at all", got=list(messages), expected="something to answer")
    said = _said(tokenizer, messages, text)
    origin = [
        Origin.PROMPT if any(a < end and start < b for a, b in said) else Origin.TEMPLATE
        for start, end in encoded["offset_mapping"]
    ]
    return Prompt(torch.tensor(encoded["input_ids"]), torch.tensor(origin, dtype=torch.uint8))


def encode_answer(tokenizer: PreTrainedTokenizerBase, text: str, stop_id: int) -> Tensor:
    """The ids [L] that a policy would sample to say ``text`` and stop."""
    refuse_special_tokens(tokenizer, text)
    return torch.tensor([*tokenizer(text, add_special_tokens=False)["input_ids"], stop_id])


def refuse_special_tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    """Raise where data would become control tokens: a paragraph must not be able to end the user's turn."""
    for token in tokenizer.all_special_tokens:
        if token in text:
            raise DataError(
                f"a text of the task holds the special token {token!r}",
                got=text if len(text) < 200 else f"{text[:200]} […]",
                expected="plain text: the template alone writes special tokens",
                remedy="take it out of the data, or write it otherwise",
            )


def decode_answer(tokenizer: PreTrainedTokenizerBase, token_ids: Tensor, stop_ids: Sequence[int]) -> str:
    """The text of an answer without its stop token; for graders and people, never encoded again."""
    ids = token_ids.tolist()
    return tokenizer.decode(ids[:-1] if ids and ids[-1] in stop_ids else ids)


def _render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> str:
    """The text of a prompt."""
    try:
        return tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    except jinja2.TemplateError as error:
        raise DataError(
            "the chat template refuses these messages",
            got=f"roles {[message.get('role') for message in messages]}: {error}",
            remedy="change the roles of the task's messages, or set model.chat_template",
        ) from error


def _said(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], text: str
) -> list[tuple[int, int]]:
    """Character spans of the messages' contents within the rendered ``text``.

    The glue between them is learnt by rendering placeholders, since a content may look like glue. Where a
    template changes its glue with the content, the whole prompt counts as said by the task.
    """
    places = [f"\ue000{i}\ue001" for i in range(len(messages))]
    outline = _render(tokenizer, [{**m, "content": place} for m, place in zip(messages, places, strict=True)])
    spans, cursor = [], 0
    for i, message in enumerate(messages):
        glue, found, outline = outline.partition(places[i])
        start = cursor + len(glue)
        after = outline.partition("\ue000")[0]
        forms = (message["content"], message["content"].strip())
        form = next((form for form in forms if text.startswith(form + after, start)), None)
        if not found or form is None or text[cursor:start] != glue:
            return [(0, len(text))]
        cursor = start + len(form)
        spans.append((start, cursor))
    return spans
