"""The tokens of a demonstration that the declared loss trains, by rendering each example again."""

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from truing.types.token import Origin

TEXT_COLUMNS = ("prompt", "completion", "messages", "tools", "chat_template_kwargs")
"""Dataset columns that examples are rendered from."""

IDS_KEY, ORIGINS_KEY, LENGTHS_KEY = "truing_ids", "truing_origin", "truing_lengths"
"""Keys added to a batch: ids of its examples, padded with −1; an ``Origin`` per id; document lengths."""

UNKNOWN = 255
"""An unknown origin: the example differs from its rendering."""


class RecordingCollator:
    """The trainer's collator, which also adds the examples of a batch to it."""

    def __init__(self, trainer: Any, tokenizer: Any, unused: Collection[str]) -> None:
        """``unused`` are columns removed for the trainer's own collator."""
        self.collator, self.unused, self.tokenizer = trainer.data_collator, frozenset(unused), tokenizer
        self.template, self.assistant = trainer.chat_template, trainer.args.assistant_only_loss
        self.completion, self.field = trainer.completion_only_loss, trainer.args.dataset_text_field

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the batch with the ids, origins and lengths of its examples."""
        batch = self.collator([{k: x for k, x in each.items() if k not in self.unused} for each in examples])
        ids = [torch.as_tensor(each["input_ids"]) for each in examples]
        origins = [self.origin(each, ids_T) for each, ids_T in zip(examples, ids, strict=True)]
        return dict(batch) | {
            LENGTHS_KEY: torch.tensor([n for each in examples for n in _lengths(each)]),
            IDS_KEY: pad_sequence(ids, batch_first=True, padding_value=-1),
            ORIGINS_KEY: pad_sequence(origins, batch_first=True, padding_value=UNKNOWN),
        }

    def origin(self, example: Mapping[str, Any], ids_T: Tensor) -> Tensor:
        """Return DEMO for trained tokens, PROMPT for others, UNKNOWN for all if they differ: [T] uint8."""
        expected = self._expected(example)
        if expected is None:
            return torch.full((len(ids_T),), UNKNOWN, dtype=torch.uint8)
        ids, trained = expected
        if ids[: len(ids_T)] != ids_T.tolist():  # truncated at its beginning, or rendered differently
            return torch.full((len(ids_T),), UNKNOWN, dtype=torch.uint8)
        demo_T = torch.tensor(trained[: len(ids_T)], dtype=torch.bool)
        demo_T[:1] = False  # the first token is never predicted
        return torch.where(demo_T, Origin.DEMO, Origin.PROMPT).to(torch.uint8)

    def _expected(self, example: Mapping[str, Any]) -> tuple[list[int], list[bool]] | None:
        """Return ids of the whole example, and which are trained; None without text columns."""
        if example.get("prompt") is not None and example.get("completion") is not None:
            prompt, _ = self._encoded(example, example["prompt"], ends=False)
            ids, by_assistant = self._encoded(example, example["prompt"] + example["completion"], ends=True)
            pairs = zip(prompt, ids, strict=False)
            shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))) if self.completion else 0
            return ids, [own and t >= shared for t, own in enumerate(by_assistant)]
        text = example.get("messages") or example.get(self.field)
        return None if text is None else self._encoded(example, text, ends=True)

    def _encoded(self, example: Mapping[str, Any], text: Any, ends: bool) -> tuple[list[int], list[bool]]:
        """Return ids of a text or messages; and which are the assistant's, if only those are trained."""
        if isinstance(text, str):
            ids = self.tokenizer(text)["input_ids"]
            return ids, [True] * len(ids)
        tools = example.get("tools")
        tools = json.loads(tools) if isinstance(tools, str) else tools
        out = self.tokenizer.apply_chat_template(
            text,
            tools=tools or None,
            chat_template=self.template,
            add_generation_prompt=not ends,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=self.assistant and ends,
            **(example.get("chat_template_kwargs") or {}),
        )
        ids = list(out["input_ids"])
        mask = out["assistant_masks"] if self.assistant and ends else [1] * len(ids)
        return ids, [bool(each) for each in mask]


def _lengths(example: Mapping[str, Any]) -> list[int]:
    """Return the lengths of an example's packed documents, or its own."""
    return list(example.get("seq_lengths") or [len(example["input_ids"])])
