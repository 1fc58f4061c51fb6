"""TPL003: Prompts are not those of their tasks.

What: The ids in front of an answer are not what the task's messages and tools render to: a system message is
missing, an example or a date was added, a tool is left out, a switch of the template is another.

Why it is silent: Each stage looks right by itself. What supervised fine-tuning taught behind one prompt is
asked for behind another, the reward begins lower than it should, and RL learns first of all to undo that.

How it is measured: Of some tasks of each update the prompt is rendered once more, from the messages and
tools that the environment gave before the first stage, and compared id by id. Before the first update, each
stage is asked in the same way what it will show.

Healthy look-alikes: A forced prefix, which belongs to no prompt. Later samples of an attempt whose past the
template writes anew. Prompts that `episode.max_prompt_tokens` shortens: they are shortened for all stages.

Fix: Change the environment's `tasks`, which all stages and the evaluation share, and never the prompts of
one stage. The first token that differs says what was added or lost.

References: docs/templates.md, docs/tasks.md
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Prompts that were rendered once more."""

    asked: int
    other: int  # of them are not what was shown
    row: int | None  # the first of those
    at: int  # its first token that differs
    got: str
    expected: str


def measure(step: Step) -> Measured:
    """As they were compared beside the update."""
    found = step.facts["prompts"]
    if not found["other"]:
        return Measured(found["asked"], 0, None, 0, "", "")
    row = next((i for i, row in enumerate(step.rows) if row.sample_id == found["sample_id"]), None)
    told = (f"{each['tokens']} tokens, there {each['text']!r}" for each in (found["got"], found["expected"]))
    return Measured(found["asked"], found["other"], row, found["at"], *told)


def judge(found: Measured) -> Iterator[Claim]:
    """One task, one prompt."""
    if found.other:
        yield Claim(
            Verdict.PROVEN,
            f"{found.other} of {found.asked} prompts are not what their tasks render to, the first from token"
            f" {found.at} on",
            got=found.got,
            expected=found.expected,
            row=found.row,
            start=found.at,
            end=found.at + 1,
            specificity=3.2,
        )


def _asked(**found: Any) -> Step:
    return changed_step(example_step(), facts={"prompts": {"asked": 2, "other": 0} | found})


def example() -> Step:
    """Supervised fine-tuning is without the system message."""
    got, expected = {"tokens": 4, "text": "<user>"}, {"tokens": 9, "text": "<system>"}
    return _asked(other=2, sample_id="s0", task_id="t0", at=1, got=got, expected=expected)


def as_given() -> Step:
    """Every prompt is that of its task."""
    return _asked()


RULE = Rule(
    code="TPL003",
    name="prompt-not-of-its-task",
    kind="E",
    needs=("facts.prompts",),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(as_given,),
)
