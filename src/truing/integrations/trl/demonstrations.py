"""Which tokens of a demonstration somebody wrote to be learned: rendered and encoded once more, by itself."""

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from truing.types.token import Origin

TEXT_COLUMNS = ("prompt", "completion", "messages", "tools", "chat_template_kwargs")
"""Columns of a dataset that examples are rendered from."""

IDS_KEY, ORIGINS_KEY, LENGTHS_KEY = "truing_ids", "truing_origin", "truing_lengths"
"""Beside a batch: ids of its examples, −1 behind their end; an ``Origin`` per id; how long documents are."""

UNKNOWN = 255
"""An origin that cannot be told: the example is no longer what it was rendered from."""


class RecordingCollator:
    """The trainer's collator; it also says which examples a batch was made of."""

    def __init__(self, trainer: Any, tokenizer: Any, unused: Collection[str]) -> None:
        """``unused`` are columns that the trainer's own collator is not shown."""
        self.collator, self.unused, self.tokenizer = trainer.data_collator, frozenset(unused), tokenizer
        self.template, self.assistant = trainer.chat_template, trainer.args.assistant_only_loss
        self.completion, self.field = trainer.completion_only_loss, trainer.args.dataset_text_field

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch, and beside it what it was made of."""
        batch = self.collator([{k: x for k, x in each.items() if k not in self.unused} for each in examples])
        ids = [torch.as_tensor(each["input_ids"]) for each in examples]
        origins = [self.origin(each, told) for each, told in zip(examples, ids, strict=True)]
        return dict(batch) | {
            LENGTHS_KEY: torch.tensor([n for each in examples for n in _lengths(each)]),
            IDS_KEY: pad_sequence(ids, batch_first=True, padding_value=-1),
            ORIGINS_KEY: pad_sequence(origins, batch_first=True, padding_value=UNKNOWN),
        }

    def origin(self, example: Mapping[str, Any], ids_T: Tensor) -> Tensor:
        """DEMO where the declared loss reads, PROMPT elsewhere, UNKNOWN if it cannot be told: [T] uint8."""
        wanted = self._expected(example)
        if wanted is None:
            return torch.full((len(ids_T),), UNKNOWN, dtype=torch.uint8)
        ids, learned = wanted
        if ids[: len(ids_T)] != ids_T.tolist():  # cut at its beginning, or rendered otherwise
            return torch.full((len(ids_T),), UNKNOWN, dtype=torch.uint8)
        demo_T = torch.tensor(learned[: len(ids_T)], dtype=torch.bool)
        demo_T[:1] = False  # nothing comes before the first token
        return torch.where(demo_T, Origin.DEMO, Origin.PROMPT).to(torch.uint8)

    def _expected(self, example: Mapping[str, Any]) -> tuple[list[int], list[bool]] | None:
        """Ids of the whole example, and which are to be learned; None where it has no text of its own."""
        if example.get("prompt") is not None and example.get("completion") is not None:
            prompt, _ = self._encoded(example, example["prompt"], ends=False)
            ids, spoken = self._encoded(example, example["prompt"] + example["completion"], ends=True)
            pairs = zip(prompt, ids, strict=False)
            shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))) if self.completion else 0
            return ids, [said and t >= shared for t, said in enumerate(spoken)]
        text = example.get("messages") or example.get(self.field)
        return None if text is None else self._encoded(example, text, ends=True)

    def _encoded(self, example: Mapping[str, Any], text: Any, ends: bool) -> tuple[list[int], list[bool]]:
        """Ids of a text or of messages, and which of them an assistant said, where that matters."""
        if isinstance(text, str):
            ids = self.tokenizer(text)["input_ids"]
            return ids, [True] * len(ids)
        given = example.get("tools")
        given = json.loads(given) if isinstance(given, str) else given
        out = self.tokenizer.apply_chat_template(
            text,
            tools=given or None,
            chat_template=self.template,
            add_generation_prompt=not ends,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=self.assistant and ends,
            **(example.get("chat_template_kwargs") or {}),
        )
        ids = list(out["input_ids"])
        spoken = out["assistant_masks"] if self.assistant and ends else [1] * len(ids)
        return ids, [bool(each) for each in spoken]


def _lengths(example: Mapping[str, Any]) -> list[int]:
    """Of the documents that an example was packed of, or its own."""
    return list(example.get("seq_lengths") or [len(example["input_ids"])])
