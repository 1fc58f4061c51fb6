"""The second rank samples with other random numbers."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def attempts_of(tasks, group_size, context, key):
        attempts = real(tasks, group_size, context, key)
        for attempt in attempts:
            attempt.key = (*attempt.key, "second rank")
        return attempts

    return attempts_of


FAULT = Fault(
    name="rank-other-draws",
    numbers=(95,),
    what="one rank samples with other random numbers",
    plant=lambda: patched("truing.rollouts.collect:_start_attempts", _wrong),
    expected=("DST001",),
    changes={"trainer.ranks": 2, "stages": ["grpo"]},
    on_ranks=(1,),
)
