"""The sampler stops one token before the declared limit."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def goes_on(row, sampling_params):
        return real(row, sampling_params) and len(row.ids) < sampling_params.max_new_tokens - 1

    return goes_on


FAULT = Fault(
    name="limit-one-early",
    numbers=(67,),
    what="max_new_tokens is off by one in the sampler",
    plant=lambda: patched("truing.engines.base:ActiveRow.is_unfinished", _wrong),
    expected=("LEN005",),
)
