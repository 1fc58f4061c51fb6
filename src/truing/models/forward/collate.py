"""From samples to a right-padded batch: tensors [B, T]; left-padded rows are only in the sampler."""

from collections.abc import Sequence

import torch
from torch import Tensor

from truing.types.batch import Batch
from truing.types.sample import FLOAT_STREAMS, MASKS, Sample

STREAMS = tuple(name for name in (*MASKS, *FLOAT_STREAMS) if name != "structure")


def collate(samples: Sequence[Sample]) -> Batch:
    """Return samples stacked; pads are 0, invalid and masked out.

    Lengths 2 and 3: token_ids [[a, b, 0], [c, d, e]], valid [[1, 1, 0], [1, 1, 1]].
    """
    streams = {name: _stack([getattr(sample, name) for sample in samples]) for name in STREAMS}
    return Batch(
        samples=tuple(samples),
        token_ids=_stack([sample.token_ids for sample in samples]),
        valid=_stack([torch.ones(len(sample), dtype=torch.bool) for sample in samples]),
        **streams,
    )


def _stack(streams: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(streams), batch_first=True)
