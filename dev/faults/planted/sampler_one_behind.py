"""The sampler is synced every second step."""

from itertools import count

from dev.faults.fault import NO_SYNC, Fault, patched


def _wrong(real):
    calls = count()
    return lambda policy, plain: real(policy, plain) if next(calls) % 2 == 0 else None


FAULT = Fault(
    name="sampler-one-behind",
    numbers=(26,),
    what="every second sync is missing",
    plant=lambda: patched("truing.engines.local.engine:sync_weights", _wrong),
    expected=("SMP003", "SMP004"),
    changes={"lora.rank": 4, "stages": ["grpo"], "grpo.steps": 4},
    not_in_bfloat16=NO_SYNC,
)
