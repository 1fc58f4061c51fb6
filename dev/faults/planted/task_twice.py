"""The last task of each update is its first one again."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def tasks_of_step(session, stage, step, count):
        tasks = real(session, stage, step, count)
        return [*tasks[:-1], tasks[0]]

    return tasks_of_step


FAULT = Fault(
    name="task-twice",
    numbers=(103,),
    what="a task is sampled twice in an update, in place of another",
    plant=lambda: patched("truing.learner.session:Session.tasks_of_step", _wrong),
    expected=("SMP013",),
)
