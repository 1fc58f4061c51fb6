"""SMP010: The same tasks again and again.

What: For several updates the same prompts were trained on, though there are others to draw.

Why it is silent: Rewards on tasks that are repeated rise, and faster than on tasks that change. Only an
evaluation on others shows that nothing else was learned.

How it is measured: The set of prompts of this batch against those of the batches before. Where it is known
how many tasks there are, the chance that draws from all of them fall into the set again: (prompts ÷
tasks)^draws for each batch. It is told below one in 10⁴, after two repetitions at least; where it is not
known, after four.

Healthy look-alikes: A batch of all the tasks that there are. Few tasks, of which two batches in a row may
draw the same. One example that is written many times over counts as many here; and who trains on one batch
to see whether anything is learned at all means to: therefore it is a suspicion.

Fix: Look at the sampler of the data set: an index that is not moved on, a loader that is made anew before
each batch with the same seed, an iterator that is never advanced.

References: https://github.com/pytorch/pytorch/issues/5059, docs/tasks.md
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.rules.opt012 import batched
from truing.doctor.verdict import Claim, Verdict

CHANCE = -4.0
"""log10 of the chance below which it is told."""

TIMES, BLIND = 2, 4
"""Repetitions that it takes, and where nobody knows how many tasks there are."""


class Measured(NamedTuple):
    """How often the prompts of this batch were drawn before, in a row."""

    prompts: int
    times: int
    tasks: int | None  # that there are
    chance: float  # log10, of so many repetitions; NaN where it is not known


def measure(step: Step) -> Measured:
    """Batches just before with the same prompts."""
    now = step.facts["batch"]
    batches = [each.facts["batch"] for each in reversed(step.past_of_stage) if "batch" in each.facts]
    times = len(list(takewhile(lambda batch: batch["prompts"] == now["prompts"], batches)))
    prompts, tasks = now["distinct"], now["total"]
    chance = math.nan if tasks is None else times * now["drawn"] * math.log10(min(1.0, prompts / tasks))
    return Measured(prompts, times, tasks, chance)


def judge(found: Measured) -> Iterator[Claim]:
    """So many repetitions are no chance, but may be meant."""
    improbable = found.times >= BLIND if math.isnan(found.chance) else found.chance <= CHANCE
    if found.times >= TIMES and improbable:
        of = "" if found.tasks is None else f" of {found.tasks} tasks"
        odds = "" if math.isnan(found.chance) else f"; by chance once in 10^{-found.chance:.0f}"
        yield Claim(
            Verdict.SUSPECT,
            f"the last {found.times + 1} batches are of the same prompts, though there are others",
            got=f"{found.prompts} prompts{of}{odds}",
            expected="other tasks in each batch",
            specificity=2,
        )


def _again(times: int, total: int | None) -> Step:
    """The second batch, or a later one, of the same two tasks."""
    earlier = [
        past_step(
            n,
            facts={
                "batch": batched(example_step(answers=(5, 4, 4, 5, 3, 5, 5, 4)), n, f"{n}/", total).facts[
                    "batch"
                ]
            },
        )
        for n in range(times)
    ]
    return replace(changed_step(batched(example_step(), times, f"{times}/", total), past=earlier), step=times)


def example() -> Step:
    """Two of two hundred tasks, in four batches."""
    return _again(3, 200)


def all_there_are() -> Step:
    """Two tasks, and no others."""
    return _again(9, 2)


def few() -> Step:
    """Two of three tasks, in three batches."""
    return _again(2, 3)


RULE = Rule(
    code="SMP010",
    name="same-tasks",
    kind="S",
    needs=("facts.batch",),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(all_there_are, few),
)
