"""Each step reuses the random numbers of the one before, with a data set of one batch."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def attempts_of(tasks, group_size, context, key):
        attempts = real(tasks, group_size, context, key)
        places = sorted(task.task_id for task in tasks.values())
        for attempt in attempts:
            if "grpo" in attempt.key:
                seed, stage, _, _, k = attempt.key
                # a task keeps its numbers although batches are shuffled
                attempt.key = (seed, stage, 0, places.index(attempt.task.task_id), k)
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
