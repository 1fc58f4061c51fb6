"""The random numbers of an attempt are those of its group."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def attempts_of(tasks, group_size, context, key):
        attempts = real(tasks, group_size, context, key)
        for attempt in attempts:
            attempt.key = attempt.key[:-1]
        return attempts

    return attempts_of


FAULT = Fault(
    name="seed-of-group",
    numbers=(64,),
    what="all attempts of a group share random numbers",
    plant=lambda: patched("truing.rollouts.collect:_start_attempts", _wrong),
    expected=("SMP008", "SMP009"),
)
