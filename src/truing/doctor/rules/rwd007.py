"""RWD007: Evaluation tasks are trained.

What: Prompts of this batch are among those of the evaluation.

Why it is silent: The evaluation rises, as intended. Nothing in the training is wrong, but the number no
longer measures the policy on unseen tasks.

How it is measured: The tasks of a batch against those of the evaluation, message by message. Truing refuses
an environment whose splits share a prompt, so here it is proven; for another trainer it is known after an
evaluation.

Healthy look-alikes: Other tasks under the same id. A prompt in both sets on purpose, to measure training
tasks: another trainer declares nothing, so there it is a suspicion.

Fix: Check which split the training uses. Evaluate the checkpoints again on held-out tasks; earlier numbers
are of no use.

References: https://arxiv.org/abs/2311.04850, docs/tasks.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim any held-out task in training."""
    found = step.facts["held_out"]
    if found["count"]:
        yield Claim(
            Verdict.PROVEN if found["declared"] else Verdict.SUSPECT,
            f"{found['count']} trained prompts are in the evaluation",
            got=f"{', '.join(found['trained'])}, of {found['tasks']} tasks of the evaluation",
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
    """No task is in both."""
    return _shared(0)


RULE = Rule(
    code="RWD007",
    name="evaluation-trained-on",
    kind="C",
    needs=("facts.held_out",),
    taints=("metrics",),
    judge=judge,
    example=example,
    lookalikes=(apart,),
)
