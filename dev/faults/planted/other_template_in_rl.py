"""Supervised fine-tuning and RL render the same messages differently."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def begin(chat, task):
        first, *others = task.messages
        spaced = {**first, "content": f"{first['content']} "}
        return real(chat, replace(task, messages=(spaced, *others)))

    return begin


FAULT = Fault(
    name="other-template-in-rl",
    numbers=(12,),
    what="prompts of RL are rendered differently from those of SFT",
    plant=lambda: patched("truing.rollouts.collect:start_dialogue", _wrong),
    expected=(),
    refusal="the prompts of SFT and RL differ",
)
