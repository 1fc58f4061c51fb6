"""Evaluations lack the system message of training."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def bare(task):
        return replace(task, messages=tuple(each for each in task.messages if each["role"] != "system"))

    def draw(session, tasks, group_size, sampling_params, key, *args, **kwargs):
        tasks_without_system = [bare(task) for task in tasks] if key == ("eval",) else tasks
        return real(session, tasks_without_system, group_size, sampling_params, key, *args, **kwargs)

    return draw


FAULT = Fault(
    name="evaluated-without-system",
    numbers=(68,),
    what="evaluations lack the system message of training",
    plant=lambda: patched("truing.learner.session:Session.collect_rollouts", _wrong),
    expected=(),
    refusal="differently from the environment's prompt",
)
