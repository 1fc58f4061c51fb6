"""RWD007: Tasks of the evaluation are trained on.

What: Prompts of this batch are among those that the evaluation asks.

Why it is silent: The evaluation rises, which is what everybody hopes for. Nothing in the training is wrong;
the number that is to say how well the policy does on what it has not seen says something else.

How it is measured: What the tasks of a batch ask against what those of the evaluation ask, message by
message. A run of Truing refuses an environment whose splits share a prompt, so here it is proven; of
another trainer it is known once an evaluation was made.

Healthy look-alikes: Other tasks under the same id. A prompt that both sets have because somebody wants to
see how training tasks are learned: another trainer declares nothing, and there it is a suspicion.

Fix: Look at which split the training draws from. Evaluate the checkpoints again on tasks that were never
trained on; numbers of before are of no use.

References: https://arxiv.org/abs/2311.04850, docs/tasks.md
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Tasks of a batch that the evaluation has too."""

    trained: tuple[str, ...]  # the first of them
    shared: int
    tasks: int  # of the evaluation
    declared: bool  # that the two are apart


def measure(step: Step) -> Measured:
    """As it was compared beside the update."""
    found = step.facts["held_out"]
    return Measured(tuple(found["trained"]), found["count"], found["tasks"], found["declared"])


def judge(found: Measured) -> Iterator[Claim]:
    """What is held out is not trained on."""
    if found.shared:
        yield Claim(
            Verdict.PROVEN if found.declared else Verdict.SUSPECT,
            f"the evaluation asks {found.shared} of the prompts that are trained on",
            got=f"{', '.join(found.trained)}, of {found.tasks} tasks of the evaluation",
            expected="none",
            specificity=2.4,
        )


def _shared(count: int) -> Step:
    names = [f"t{index}" for index in range(count)]
    fact = {"trained": names, "count": count, "tasks": 8, "declared": True}
    return changed_step(example_step(), facts={"held_out": fact})


def example() -> Step:
    """The training draws from the evaluation's split."""
    return _shared(2)


def apart() -> Step:
    """Nothing is in both."""
    return _shared(0)


RULE = Rule(
    code="RWD007",
    name="evaluation-trained-on",
    kind="C",
    needs=("facts.held_out",),
    taints=("metrics",),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(apart,),
)
