"""The stop token has no loss, as with pad equal to eos and padding masked by id."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from truing.types.token import Excluded


def _wrong(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        stops = (
            original.token_ids[:, None] == original.token_ids.new_tensor(original.sampling_params.stop_ids)
        ).any(1)
        off = original.policy_mask & stops
        why = original.excluded.masked_fill(off, Excluded.STRUCTURE)
        return replace(original, policy_mask=original.policy_mask & ~off, excluded=why)

    return sample


FAULT = Fault(
    name="stop-masked",
    numbers=(7,),
    what="the stop token is masked because its id is the pad id",
    plant=lambda: patched("truing.rollouts.flatten:_sample", _wrong),
    expected=("MSK002", "MSK004"),
)
