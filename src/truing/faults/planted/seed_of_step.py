"""Each step reuses the random numbers of the one before, with a data set of one batch."""

from truing.faults.fault import Fault, patched


def _wrong(real):
    def attempts_of(tasks, group_size, context, key):
        in_order = sorted(tasks.values(), key=lambda task: task.task_id)
        attempts = real(dict(zip(tasks, in_order, strict=True)), group_size, context, key)
        for attempt in attempts:
            attempt.key = tuple(0 if place == 2 else part for place, part in enumerate(attempt.key))
        return attempts

    return attempts_of


FAULT = Fault(
    name="seed-of-step",
    numbers=(64,),
    what="each step reuses the random numbers of the one before",
    plant=lambda: patched("truing.rollouts.collect:_start_attempts", _wrong),
    expected=("SMP008", "SMP009"),
    changes={"env.train": 4},
)
