"""The samples of an optimizer step of TRL, before those of the ranks are joined to one table."""

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.facts.id_comparison import IdPair
from truing.types.sample import SampleFacts
from truing.types.step_table import PASS_STREAMS, Passes, StepNumbers, StepTable, starts_of


class Rows(NamedTuple):
    """Samples of one rank or of all: each with its streams [T], and ids that must be equal."""

    samples: list[SampleFacts]
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

    def table(self, numbers: StepNumbers) -> StepTable:
        """Return the step with these numbers; a stream is in it if every row has it."""
        names = sorted(set.intersection(*(set(each) for each in self.streams)))
        tokens = {name: torch.cat([each[name] for each in self.streams]) for name in names}
        index_P = torch.arange(len(self.samples))
        of_passes = {name: tokens.pop(name) for name in PASS_STREAMS if name in tokens}
        return StepTable(
            **vars(numbers),
            samples=self.samples,
            starts=starts_of([len(each["token_ids"]) for each in self.streams]),
            streams=tokens,
            passes=Passes(
                sample=index_P,
                optimizer_step=torch.full_like(index_P, self.optimizer_step),
                micro_batch=torch.tensor(self.micro_batches),
                rank=torch.tensor(self.ranks),
                streams=of_passes,
            ),
        )


def joined(parts: Iterable[Rows]) -> Rows:
    """Return the rows of all ranks, in their order."""
    parts = list(parts)
    samples, streams, pairs = (
        list(chain.from_iterable(each)) for each in zip(*(p[:3] for p in parts), strict=True)
    )
    ranks = [rank for rank, part in enumerate(parts) for _ in part.samples]
    micro_batches = list(chain.from_iterable(part.micro_batches for part in parts))
    return Rows(samples, streams, pairs, ranks, micro_batches, parts[0].optimizer_step)
