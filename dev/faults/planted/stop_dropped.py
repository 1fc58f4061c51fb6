"""The sampler's result lacks the stop token."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from truing.types.status import FinishReason


def _wrong(real):
    def completion(row, *args):
        original = real(row, *args)
        if original.finish_reason is not FinishReason.STOP or len(original.token_ids) == 1:
            return original
        short = {name: getattr(original, name)[:-1] for name in ("token_ids", "origin", "logprob")}
        return replace(original, **short)

    return completion


FAULT = Fault(
    name="stop-dropped",
    numbers=(67, 7),
    what="the sampler's result lacks the stop token",
    plant=lambda: patched("truing.engines.base:ActiveRow.to_completion", _wrong),
    expected=("LEN005", "MSK004"),
    changes={"sft.steps": 15},
)
