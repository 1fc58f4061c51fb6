"""TOK007: A demonstration is not that of its task.

What: The demonstrated ids of a sample do not decode to the turns that its task demonstrates: they are those
of another task, empty, cut, doubled, or lack their stop.

Why it is silent: The loss of any text falls. If each task is shown the answer of the next one, the policy
learns the form of answers and not to answer; if one answer in ten is empty, it learns to say nothing in one
case of ten.

How it is measured: At every step the tokenizer decodes up to 16 demonstrations, which the key selects. Each
turn must have the content that its task demonstrates, once, with the name and the arguments of its calls,
and end in a stop id. What the template writes around a content without calls is the same in most turns, so
one with anything else around it differs.

Healthy look-alikes: White space, broken characters, and what the template writes around a turn. Arguments
that a format writes otherwise than they are, as JSON does with quotes and numbers. A task that demonstrates
a whole text has its ids, and no stop.

Fix: Look for what brings demonstrations and tasks together: an index, a shuffle of one of two lists, a cache
by another key, a limit that cuts.

References: docs/tasks.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.rule import Rule
from truing.doctor.rules.msk007 import demonstrated_step
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim any turn that is not its task's."""
    fact = step.facts["demonstrations"]
    if fact["other"]:
        yield Claim(
            Verdict.PROVEN,
            f"{fact['other']} of {fact['checked']} demonstrated turns are not those of their tasks",
            got=f"{fact.get('got', '')!r} is trained",
            expected=f"{fact.get('expected', '')!r} once, and a stop at the end",
            row=step.row_of(fact.get("sample_id", "")),
            specificity=4.5,
        )


def _compared(**fact: object) -> Step:
    return changed_step(demonstrated_step(), facts={"demonstrations": {"checked": 8, "other": 0} | fact})


def example() -> Step:
    """Each task is shown the answer of the next one."""
    return _compared(other=8, sample_id="s0", got="7<|im_end|>", expected="12")


def as_demonstrated() -> Step:
    """Every demonstration is its task's."""
    return _compared()


RULE = Rule(
    code="TOK007",
    name="demonstration-of-another-task",
    kind="E",
    needs=("facts.demonstrations",),
    taints=("sft", "policy"),
    applies=lambda step: step.setup.algo == "sft" or "demonstrations" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(as_demonstrated,),
)
