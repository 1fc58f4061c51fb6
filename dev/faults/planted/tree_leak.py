"""In the tree a branch sees a little of its neighbour."""

from itertools import pairwise

from dev.faults.fault import Fault, patched

SHARE = 1e-3
"""Of the other branch's values: log-probabilities move by some 1e-4 nats, and rounding moves them by 5e-7."""


def _wrong(real):
    def forward(ctx, q, k, v, segments, scale):
        out = real.__func__(ctx, q, k, v, segments, scale)
        times = q.shape[1] // v.shape[1]
        leaves = [(start, end) for start, end, last in segments if last == end]
        for (start, end), (other, stop) in pairwise(leaves):
            length = min(end - start, stop - other)
            seen = v[:, :, start : start + length].repeat_interleave(times, 1)
            out[:, :, other : other + length] += SHARE * seen
        return out

    return staticmethod(forward)


FAULT = Fault(
    name="tree-leak",
    numbers=(70,),
    what="a branch of the tree sees a little of its neighbour",
    plant=lambda: patched("truing.models.forward.tree_attention:_TreeAttention.forward", _wrong),
    expected=("SMP006",),
    not_in_bfloat16="below bfloat16's rounding: it moves log-probabilities by 1e-4 nats, rounding by 1e-3",
)
