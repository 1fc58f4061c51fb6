"""Numbers of a step's N tokens that several metrics share: [N] float64, NaN where missing."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from truing.ops.ratios import Level, importance_ratio, log_ratio
from truing.types.step_table import StepTable


def token_ratio(table: StepTable, level: Level) -> Tensor:
    """Return the importance ratio of each policy token, or of its sequence; NaN where not computed."""
    log_ratio_N = log_ratio(table.stream("new_logprob"), table.stream("old_logprob"))
    scored_N = table.policy & ~log_ratio_N.isnan()
    log_ratio_BT, scored_BT = (
        pad_sequence(list(stream_N.split(table.lengths)), batch_first=True)
        for stream_N in (log_ratio_N, scored_N)
    )
    present_BT = torch.arange(log_ratio_BT.shape[1]) < torch.tensor(table.lengths)[:, None]
    ratio_N = importance_ratio(log_ratio_BT, scored_BT, level)[present_BT]
    return ratio_N.masked_fill(~scored_N, torch.nan)


def drop_nan(*streams_N: Tensor) -> tuple[Tensor, ...]:
    """Return the entries at which every stream [N] has a number."""
    absent_N = torch.stack(streams_N).isnan().any(dim=0)
    return tuple(stream_N[~absent_N] for stream_N in streams_N)
