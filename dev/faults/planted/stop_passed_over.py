"""Rows go on after a stop, up to the limit."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def goes_on(row, sampling_params):
        return len(row.ids) < sampling_params.max_new_tokens

    return goes_on


FAULT = Fault(
    name="stop-passed-over",
    numbers=(67,),
    what="rows go on after a stop",
    plant=lambda: patched("truing.engines.base:ActiveRow.is_unfinished", _wrong),
    expected=("LEN005",),
    changes={"sampling.max_new_tokens": 24},
)
