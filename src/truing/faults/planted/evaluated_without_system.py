"""Evaluations are without the system message that training has."""

from dataclasses import replace

from truing.faults.fault import Fault, patched


def _wrong(real):
    def bare(task):
        return replace(task, messages=tuple(each for each in task.messages if each["role"] != "system"))

    def draw(session, tasks, group_size, contract, key, force_rate=0.0):
        shown = [bare(task) for task in tasks] if key == ("eval",) else tasks
        return real(session, shown, group_size, contract, key, force_rate)

    return draw


FAULT = Fault(
    name="evaluated-without-system",
    numbers=(68,),
    what="evaluations are without the system message that training has",
    plant=lambda: patched("truing.learner.session:Session.collect_rollouts", _wrong),
    expected=(),
)
