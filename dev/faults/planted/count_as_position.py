"""Left padding is assumed where there is none: the mask is moved by the number of pads."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def collate(samples):
        batch = real(samples)
        pads = [batch.valid.shape[1] - len(sample) for sample in samples]
        moved = torch.stack([row.roll(-n) for row, n in zip(batch.policy_mask, pads, strict=True)])
        advantages = [sample.advantage.nan_to_num()[sample.policy_mask][:1] for sample in samples]
        rows = torch.stack([torch.cat([each, each.new_zeros(1)])[0] for each in advantages])
        return replace(
            batch,
            policy_mask=moved,
            old_logprob=batch.old_logprob.nan_to_num(),
            advantage=rows[:, None].expand(moved.shape),
        )

    return collate


FAULT = Fault(
    name="count-as-position",
    numbers=(4, 5),
    what="the mask is placed by valid_len − resp_len, as if padding were on the other side",
    plant=lambda: patched("truing.learner.step:collate", _wrong),
    expected=("MSK003",),
)
