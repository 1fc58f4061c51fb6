"""The stop token has no loss, as with pad equal to eos and padding masked by id."""

from dataclasses import replace

from truing.faults.fault import Fault, patched
from truing.types.token import Excluded


def _wrong(real):
    def sample(*args, **kwargs):
        made = real(*args, **kwargs)
        stops = (made.token_ids[:, None] == made.token_ids.new_tensor(made.sampling_params.stop_ids)).any(1)
        off = made.policy_mask & stops
        why = made.excluded.masked_fill(off, Excluded.STRUCTURE)
        return replace(made, policy_mask=made.policy_mask & ~off, excluded=why)

    return sample


FAULT = Fault(
    name="stop-masked",
    numbers=(7,),
    what="the stop token is masked because its id is the pad id",
    plant=lambda: patched("truing.rollouts.flatten:_sample", _wrong),
    expected=("MSK002", "MSK004"),
)
