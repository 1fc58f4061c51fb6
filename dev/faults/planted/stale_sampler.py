"""The sampler keeps the weights of the start of the run."""

from dev.faults.fault import NO_SYNC, Fault, patched


def _wrong(real):
    return lambda policy, plain: None


FAULT = Fault(
    name="stale-sampler",
    numbers=(26, 27),
    what="the adapter never reaches the sampler",
    plant=lambda: patched("truing.engines.local.engine:sync_weights", _wrong),
    expected=("SMP003", "SMP004"),
    changes={"lora.rank": 4},
    not_in_bfloat16=NO_SYNC,
)
