"""Supervised fine-tuning lacks the system message of RL."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def demonstrate(session, tasks, key):
        def bare(task):
            messages = tuple(message for message in task.messages if message["role"] != "system")
            return replace(task, messages=messages)

        return real(session, [bare(task) for task in tasks], key)

    return demonstrate


FAULT = Fault(
    name="sft-without-system",
    numbers=(68,),
    what="supervised fine-tuning lacks the system message of RL",
    plant=lambda: patched("truing.learner.session:Session.play_demonstrations", _wrong),
    expected=(),
    refusal="differently from the environment's prompt",
)
