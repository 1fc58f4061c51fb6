"""The sampler stops at an undeclared id, and records a stop."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace

from dev.faults.fault import Fault, patched
from truing.types.status import FinishReason

OTHER = ord("1")
"""An id that the policy samples often."""


def _goes_on(real):
    return lambda row, sampling_params: row.ids[-1] != OTHER and real(row, sampling_params)


def _completion(real):
    def completion(row, *args):
        original = real(row, *args)
        return replace(original, finish_reason=FinishReason.STOP) if row.ids[-1] == OTHER else original

    return completion


@contextmanager
def _plant():
    with ExitStack() as stack:
        stack.enter_context(patched("truing.engines.base:ActiveRow.is_unfinished", _goes_on))
        stack.enter_context(patched("truing.engines.base:ActiveRow.to_completion", _completion))
        yield


FAULT = Fault(
    name="stop-undeclared",
    numbers=(67,),
    what="the sampler stops at an id that is no declared stop",
    plant=_plant,
    expected=("LEN005",),
    changes={"sampling.max_new_tokens": 8},
)
