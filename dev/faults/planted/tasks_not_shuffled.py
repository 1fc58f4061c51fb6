"""Tasks come in the order of the data set."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def tasks_of_step(session, stage, step, count):
        tasks = session.train_tasks
        return [tasks[n % len(tasks)] for n in range(step * count, (step + 1) * count)]

    return tasks_of_step


FAULT = Fault(
    name="tasks-not-shuffled",
    numbers=(103,),
    what="tasks come in the order of the data set",
    plant=lambda: patched("truing.learner.session:Session.tasks_of_step", _wrong),
    expected=("SMP013",),
)
