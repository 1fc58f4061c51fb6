"""Passes: one sample in one optimizer step each, with what its forward and backward gave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

PASS_STREAMS = (
    "new_logprob",
    "entropy",
    "raw_entropy",
    "token_gradient",
    "entropy_gradient",
    "new_value",
    "value_gradient",
)
"""Streams of the M tokens of all passes.

``new_logprob``: nats, by the weights before the optimizer step, under the sampling parameters; ``entropy``:
nats, of the sampling distribution; ``raw_entropy``: nats, of the model's own; ``token_gradient``:
−∂loss/∂logprob, > 0 raises the token's probability; ``entropy_gradient``: −∂loss/∂entropy, if some loss
term reads entropies; ``new_value``: of the critic, reward units; ``value_gradient``: −∂loss/∂value.
"""

PASS_COLUMNS = ("optimizer_step", "micro_batch", "rank")
"""Where each pass of a sample was computed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Passes:
    """P passes, by sample and then by optimizer step: one sample in one optimizer step each.

    With inner epochs a sample has several. A sample of a minibatch that has no gradient in any loss term is
    not computed: its micro-batch and rank are −1, and its numbers NaN.
    """

    sample: Tensor  # [P] int64, index into the samples of the step
    optimizer_step: Tensor  # [P] int64, within the step
    micro_batch: Tensor  # [P] int64, within the optimizer step
    rank: Tensor  # [P] int64
    streams: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])  # PASS_STREAMS: [M]

    def __len__(self) -> int:
        return len(self.sample)

    @classmethod
    def one_each(cls, samples: int, streams: Mapping[str, Tensor], optimizer_step: int = 0) -> "Passes":
        """Return one pass of each sample, all in one optimizer step and one micro-batch, with streams [N]."""
        index_P = torch.arange(samples)
        zero_P = torch.zeros_like(index_P)
        return cls(
            sample=index_P,
            optimizer_step=zero_P + optimizer_step,
            micro_batch=zero_P,
            rank=zero_P,
            streams=streams,
        )

    def select(self, chosen_P: Tensor, lengths: Sequence[int]) -> "Passes":
        """Return some of the passes, [P] bool; ``lengths`` are those of all samples."""
        token_M = chosen_P.repeat_interleave(torch.tensor(lengths, dtype=torch.int64)[self.sample])
        return Passes(
            sample=self.sample[chosen_P],
            optimizer_step=self.optimizer_step[chosen_P],
            micro_batch=self.micro_batch[chosen_P],
            rank=self.rank[chosen_P],
            streams={name: stream_M[token_M] for name, stream_M in self.streams.items()},
        )

    @cached_property
    def sample_list(self) -> list[int]:
        """The sample of each pass."""
        return list(map(int, self.sample))

    @cached_property
    def epoch(self) -> Tensor:
        """How many earlier passes the sample has in the step: [P] int64."""
        place_P = torch.arange(len(self))
        return place_P - torch.searchsorted(self.sample, self.sample)

    @cached_property
    def is_last(self) -> Tensor:
        """Whether it is the sample's last pass in the step: [P] bool."""
        is_last_P = torch.ones(len(self), dtype=torch.bool)
        is_last_P[:-1] = self.sample[1:] != self.sample[:-1]
        return is_last_P


NO_PASSES = Passes.one_each(0, {})
