"""SMP010: The same tasks repeat in each batch.

What: Several updates in a row use the same prompts, although the data set has others.

Why it is silent: Rewards on repeated tasks rise, and faster than on changing ones. Only an evaluation on
others shows that the policy learned nothing else.

How it is measured: The set of prompts of this batch against those of the batches before. If the number of
tasks is known, the probability that draws from all of them fall into the set again: (prompts ÷ tasks)^draws
for each batch. The rule reports it below one in 10⁴, after at least two repetitions; with an unknown number
of tasks, after four.

Healthy look-alikes: A batch of all tasks. Few tasks, of which two batches in a row may have the same. One
example repeated many times in the data set counts as many tasks here. A deliberate overfit on one batch:
therefore it is a suspicion.

Fix: Check the sampler of the data set: an index that does not advance, a loader created again before each
batch with the same seed, an iterator that never advances.

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
"""log10 of the probability for a claim."""

TIMES, BLIND = 2, 4
"""Repetitions for a claim, with a known and an unknown number of tasks."""


class Measured(NamedTuple):
    """Repetitions of the prompts of this batch, in a row."""

    prompts: int
    times: int
    tasks: int | None  # in all
    chance: float  # log10 of the probability of these repetitions; NaN if unknown


def measure(step: Step) -> Measured:
    """Count the batches just before with the same prompts."""
    now = step.facts["batch"]
    batches = [each.facts["batch"] for each in reversed(step.latest) if "batch" in each.facts]
    times = len(list(takewhile(lambda batch: batch["prompts"] == now["prompts"], batches)))
    prompts, tasks = now["distinct"], now["total"]
    chance = math.nan if tasks is None else times * now["drawn"] * math.log10(min(1.0, prompts / tasks))
    return Measured(prompts, times, tasks, chance)


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim improbable repetitions, which may be intended."""
    improbable = measured.times >= BLIND if math.isnan(measured.chance) else measured.chance <= CHANCE
    if measured.times >= TIMES and improbable:
        of = "" if measured.tasks is None else f" of {measured.tasks} tasks"
        odds = "" if math.isnan(measured.chance) else f"; p = 10^{measured.chance:.0f}"
        yield Claim(
            Verdict.SUSPECT,
            f"the last {measured.times + 1} batches have the same prompts, although the data set has others",
            got=f"{measured.prompts} prompts{of}{odds}",
            expected="other tasks in each batch",
            specificity=2,
        )


def _again(times: int, total: int | None) -> Step:
    """Return the second batch, or a later one, of the same two tasks."""
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
