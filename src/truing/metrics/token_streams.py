"""The tokens of all rows of an update, concatenated, as streams of numbers."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from truing.ops.ratios import Level, importance_ratio, log_ratio
from truing.record.rows import TRAINER_NUMBERS, SampleRow
from truing.types.token import Origin


class TokenStreams:
    """N tokens. Masks are [N] bool; numbers [N] float64, NaN where missing."""

    def __init__(self, rows: Sequence[SampleRow]) -> None:
        self.rows = rows
        self.lengths = [len(row.sample) for row in rows]
        self._numbers: dict[str, Tensor] = {}

    @cached_property
    def row_index(self) -> Tensor:
        """The row of each token, [N] int64."""
        return torch.repeat_interleave(torch.tensor(self.lengths))

    @cached_property
    def origin(self) -> Tensor:
        """An ``Origin`` per token, [N] uint8."""
        return torch.cat([row.sample.origin for row in self.rows])

    @cached_property
    def policy(self) -> Tensor:
        """Tokens under the policy term."""
        return torch.cat([row.sample.policy_mask for row in self.rows])

    @cached_property
    def trained(self) -> Tensor:
        """Tokens under the policy or the supervised term."""
        return self.policy | torch.cat([row.sample.supervised_mask for row in self.rows])

    @cached_property
    def sampled(self) -> Tensor:
        """Tokens of origin SAMPLED."""
        return self.origin == Origin.SAMPLED

    def stream(self, name: str) -> Tensor:
        """Return a stream of the samples, or one of the trainer's numbers."""
        if name not in self._numbers:
            owners = self.rows if name in TRAINER_NUMBERS else [row.sample for row in self.rows]
            self._numbers[name] = torch.cat([getattr(owner, name) for owner in owners]).double()
        return self._numbers[name]

    def ratio(self, level: Level) -> Tensor:
        """Return the importance ratio of each policy token, or of its sequence; NaN where not scored."""
        log_ratio_N = log_ratio(self.stream("new_logprob"), self.stream("old_logprob"))
        scored_N = self.policy & ~log_ratio_N.isnan()
        log_ratio_BT, scored_BT = (
            pad_sequence(list(stream_N.split(self.lengths)), batch_first=True)
            for stream_N in (log_ratio_N, scored_N)
        )
        present_BT = torch.arange(log_ratio_BT.shape[1]) < torch.tensor(self.lengths)[:, None]
        ratio_N = importance_ratio(log_ratio_BT, scored_BT, level)[present_BT]
        return ratio_N.masked_fill(~scored_N, torch.nan)


def drop_nan(*streams_N: Tensor) -> tuple[Tensor, ...]:
    """Return the entries at which every stream [N] has a number."""
    absent_N = torch.stack(streams_N).isnan().any(dim=0)
    return tuple(stream_N[~absent_N] for stream_N in streams_N)
