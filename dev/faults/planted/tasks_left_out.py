"""Half of the training tasks are never sampled."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def tasks_of_step(session, stage, step, count):
        half = len(session.train_tasks) // 2
        return real(replace(session, train_tasks=session.train_tasks[:half]), stage, step, count)

    return tasks_of_step


FAULT = Fault(
    name="tasks-left-out",
    numbers=(103,),
    what="half of the training tasks are never sampled",
    plant=lambda: patched("truing.learner.session:Session.tasks_of_step", _wrong),
    expected=("SMP013",),
)
