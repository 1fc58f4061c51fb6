"""SMP010: The same tasks repeat in each batch.

What: Several steps in a row use the same tasks, although the data set has others, as far as it is known.

Why it is silent: Rewards on repeated tasks rise, and faster than on changing ones. Only an evaluation on
others shows that the policy learned nothing else.

How it is measured: The set of tasks of this batch, by their prompts, against those of the batches before. If
the data set can be counted, the probability that draws from it fall into the set again: (rows that are one of
these tasks ÷ all rows)^draws for each batch. The rule reports it below one in 10⁴, after at least two
repetitions; with a data set that cannot be counted, after four.

Healthy look-alikes: A batch of all tasks. Few tasks, of which two batches in a row may have the same. One
example, repeated to fill the data set: all its rows are that task. A deliberate overfit on one batch:
therefore it is a suspicion.

Fix: Check the sampler of the data set: an index that does not advance, a loader created again before each
batch with the same seed, an iterator that never advances.

References: https://github.com/pytorch/pytorch/issues/5059, docs/tasks.md
"""

import math
from collections.abc import Iterator
from itertools import takewhile

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.rules.opt012 import batched
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

CHANCE = -4.0
"""log10 of the probability for a claim."""

TIMES, BLIND = 2, 4
"""Repetitions for a claim, with a known and an unknown number of tasks."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim improbable repetitions, which may be intended."""
    now = step.facts["batch"]
    batches = [each.facts["batch"] for each in reversed(step.latest) if "batch" in each.facts]
    times = len(list(takewhile(lambda batch: batch["tasks"] == now["tasks"], batches)))
    distinct, alike, total = now["distinct"], now["alike"], now["total"]
    if alike is None or total is None:
        improbable, others, rows = times >= BLIND, "of a data set that cannot be counted", ""
    else:
        chance = times * now["drawn"] * math.log10(min(1.0, max(alike, distinct) / total))
        improbable, others = chance <= CHANCE, "although the data set has others"
        rows = f", {alike} of {total} rows of the data set; p = 10^{chance:.0f}"
    if times >= TIMES and improbable:
        yield Claim(
            Verdict.SUSPECT,
            f"the last {times + 1} batches have the same tasks, {others}",
            got=with_count(distinct, "task") + rows,
            expected="other tasks in each batch",
            specificity=2,
        )


def _again(times: int, total: int | None, alike: int | None = None) -> Step:
    """Return the second batch, or a later one, of the same two tasks."""
    other = example_step(answers=(5, 4, 4, 5, 3, 5, 5, 4))
    batches = [batched(other, n, f"{n}/", total, alike).facts["batch"] for n in range(times)]
    earlier = [past_step(n, facts={"batch": batch}) for n, batch in enumerate(batches)]
    now = batched(example_step(), times, f"{times}/", total, alike)
    return changed_step(now, past=earlier)


def example() -> Step:
    """Two of two hundred tasks, in four batches."""
    return _again(3, 200)


def all_there_are() -> Step:
    """Two tasks, and no others."""
    return _again(9, 2)


def copies() -> Step:
    """A data set of copies of two tasks."""
    return _again(9, 200, 200)


def few() -> Step:
    """Two of three tasks, in three batches."""
    return _again(2, 3)


RULE = Rule(
    code="SMP010",
    name="same-tasks",
    kind="S",
    needs=("facts.batch",),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(all_there_are, copies, few),
)
