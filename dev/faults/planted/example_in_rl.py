"""Prompts of RL have an example that other stages lack."""

from dataclasses import replace

from dev.faults.fault import Fault, patched

EXAMPLE = ({"role": "user", "content": "max(1, 2)?"}, {"role": "assistant", "content": "2"})


def _wrong(real):
    def draw(session, tasks, *args, **kwargs):
        def longer(task):
            first, *others = task.messages
            return replace(task, messages=(first, *EXAMPLE, *others))

        return real(session, [longer(task) for task in tasks], *args, **kwargs)

    return draw


FAULT = Fault(
    name="example-in-rl",
    numbers=(68,),
    what="prompts of RL have an example that supervised fine-tuning lacks",
    plant=lambda: patched("truing.learner.session:Session.collect_rollouts", _wrong),
    expected=("TPL003",),
    refusal="differently from the environment's prompt",
)
