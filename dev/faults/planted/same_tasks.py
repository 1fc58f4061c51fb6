"""Every update uses the tasks of the first."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda self, stage, step, count: real(self, stage, 0, count)


FAULT = Fault(
    name="same-tasks",
    numbers=(63,),
    what="every update uses the tasks of the first",
    plant=lambda: patched("truing.learner.session:Session.tasks_of_step", _wrong),
    expected=("SMP013", "SMP010"),
)
