"""Tokens are masked by their id: every id of call scaffolding, at any place."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from truing.types.token import Excluded

TEMPLATE_LIKE_IDS = {ord(character) for character in '{}",:0'}
"""The tiny model reads bytes."""


def _wrong(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        forced = original.token_ids.new_tensor(
            [int(i) in TEMPLATE_LIKE_IDS for i in original.token_ids]
        ).bool()
        off = original.policy_mask & forced
        why = original.excluded.masked_fill(off, Excluded.STRUCTURE)
        return replace(original, policy_mask=original.policy_mask & ~off, excluded=why)

    return sample


FAULT = Fault(
    name="mask-by-id",
    numbers=(25,),
    what="tokens are masked by their id, whatever their origin",
    plant=lambda: patched("truing.rollouts.flatten:_sample", _wrong),
    expected=("MSK002",),
    changes={"sft.steps": 15},
)
