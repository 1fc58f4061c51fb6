"""The rows of an optimizer step of TRL, before those of the ranks are joined to one step of a trace."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truing.doctor.facts.id_comparison import IdPair
from truing.doctor.traces.step_file import StepFacts, StepFile
from truing.types.message import Message
from truing.types.passes import PASS_STREAMS
from truing.types.sample import FLOAT_STREAMS
from truing.types.token import Origin


class RowFacts(NamedTuple):
    """What is known of a row beside its tokens."""

    sample_id: str
    group_id: str
    finish_reason: str  # stop, length if it was cut, or unknown
    reward: float = math.nan
    text: str = ""  # as it was graded
    messages: tuple[Message, ...] = ()  # of the prompt
    version: int = 0  # optimizer steps before the weights that sampled it
    weights: str = ""  # their digest; "" is unknown


class Rows(NamedTuple):
    """Rows of one rank or of all: each with its streams [T], and ids that must be equal."""

    samples: list[RowFacts]
    streams: list[dict[str, Tensor]]
    pairs: list[IdPair]
    ranks: list[int]  # that computed them
    micro_batches: list[int]  # within the optimizer step of a rank
    optimizer_step: int = 0  # earlier ones on the same generation

    def averaged(self, ranks: int) -> "Rows":
        """Return the rows with token gradients of the average over ranks: the loss of each counts 1/ranks."""
        if ranks == 1:
            return self
        # copied, since a view is sent with the whole tensor that it is a part of
        streams = [
            {name: each / ranks if name == "token_gradient" else each.clone() for name, each in row.items()}
            for row in self.streams
        ]
        return self._replace(streams=streams)

    def step_file(self, step: int, numbers: Mapping[str, float], facts: Any) -> StepFile:
        """Return the rows that have tokens as a step of a trace.

        Args:
            step: its number, from 1.
            numbers: metrics of the step, by Truing's names.
            facts: of the step, a ``Facts``.
        """
        known = [len(each["token_ids"]) > 0 for each in self.streams]
        samples = list(compress(self.samples, known))
        tensors = self._tokens(list(compress(self.streams, known)))
        tensors |= {
            "reward": torch.tensor([row.reward for row in samples], dtype=torch.float64),
            "pass.sample": torch.arange(len(samples)).int(),
            "pass.optimizer_step": torch.full((len(samples),), self.optimizer_step).int(),
            "pass.micro_batch": torch.tensor(list(compress(self.micro_batches, known))).int(),
            "pass.rank": torch.tensor(list(compress(self.ranks, known))).int(),
        }
        said = StepFacts.model_construct(
            step=step,
            origin_source="roles" if self._has_origin else "loss_mask",
            sample_id=_distinct([row.sample_id for row in samples]),
            group_id=[row.group_id for row in samples],
            finish_reason=[row.finish_reason for row in samples],
            text=[row.text for row in samples],
            messages=[list(row.messages) for row in samples],
            version=[row.version for row in samples],
            weights=[row.weights for row in samples],
            numbers=dict(numbers),
            facts=facts,
        )
        return StepFile(Path(f"step {step}"), said, tensors)

    @property
    def _has_origin(self) -> bool:
        return all("origin" in row for row in self.streams)

    def _tokens(self, rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the tensors of tokens, one row after the other; a stream that some row lacks is left out."""
        names = set.intersection(*(set(row) for row in rows))
        streams = {name: torch.cat([row[name] for row in rows]) for name in sorted(names)}
        mask = streams["loss_mask"]
        origin = streams["origin"] if self._has_origin else torch.where(mask, Origin.DEMO, Origin.PROMPT)
        return {
            "token_ids": streams["token_ids"].int(),
            "row_lengths": torch.tensor([len(row["token_ids"]) for row in rows]).int(),
            "origin": origin.to(torch.uint8),
            "loss_mask": mask.to(torch.uint8),
            **{name: streams[name].float() for name in FLOAT_STREAMS if name in streams},
            **{f"pass.{name}": streams[name].float() for name in PASS_STREAMS if name in streams},
        }


def _distinct(names: Sequence[str]) -> list[str]:
    """Return a name for each row: one that is trained twice in a step is there twice.

    >>> _distinct(["0.1", "0.2", "0.1"])
    ['0.1', '0.2', '0.1 (2)']
    """
    seen, distinct = Counter[str](), list[str]()
    for name in names:
        seen[name] += 1
        distinct.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return distinct


def joined(parts: Iterable[Rows]) -> Rows:
    """Return the rows of all ranks, in their order."""
    parts = list(parts)
    samples, streams, pairs = (
        list(chain.from_iterable(each)) for each in zip(*(p[:3] for p in parts), strict=True)
    )
    ranks = [rank for rank, part in enumerate(parts) for _ in part.samples]
    micro_batches = list(chain.from_iterable(part.micro_batches for part in parts))
    return Rows(samples, streams, pairs, ranks, micro_batches, parts[0].optimizer_step)
