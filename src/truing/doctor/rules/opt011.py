"""OPT011: Rows of a batch were used more often than others, or than is declared.

What: An update went through a row twice, some rows of a batch were in none of its updates while others were
in several, or a batch was trained on after its updates were over.

Why it is silent: Every row that is used is a right row: masks, ratios, advantages and the gradient by its
closed form fit. What is left out leaves no trace, and a batch that is used for too long learns, at first,
faster.

How it is measured: Rows are named when they are drawn. Beside each update it is counted which went forward
and backward, and in how many updates of their batch they were. Over all updates of a batch each row is in
as many as there are declared passes over the batch.

Healthy look-alikes: Several passes over one batch, which are declared. A batch of which some updates were
held back, or are still to come: nobody knows yet what will be left out. Rows that no term of the loss
reads, and that therefore go through no forward. Accumulation over more micro-batches than a generation has,
with several passes: then an update has rows twice.

Fix: Look at how a batch is cut into minibatches and micro-batches, and when the next one is fetched: an
index that is not moved on, a buffer that is not renewed, an order that is drawn with replacement.

References: https://arxiv.org/abs/1707.06347, docs/control.md
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


class Batch(NamedTuple):
    """How often the rows of one batch were used."""

    rows: Sequence[int]  # how many were used never, once, twice, …
    allowed: int  # updates that each is declared to be in
    whole: bool  # whether all updates of the batch were made
    twice: Sequence[str]  # rows that one update used more than once
    most: str
    least: str


def measure(step: Step) -> list[Batch]:
    """As it was counted beside the update."""
    uses: list[dict[str, Any]] = step.facts["uses"]
    return [Batch(**each) for each in uses]


def judge(found: list[Batch]) -> Iterator[Claim]:
    """Each row as often as any other, and as is declared."""
    for batch in found:
        told = ", ".join(f"{rows} rows {times} times" for times, rows in enumerate(batch.rows) if rows)
        wrong = {
            f"row {', '.join(batch.twice)} is in one update more than once": bool(batch.twice),
            f"row {batch.most} was trained on again after the updates of its batch": len(batch.rows)
            > batch.allowed + 1,
            f"row {batch.least} was not trained on as often as others of its batch": batch.whole
            and any(batch.rows[: batch.allowed]),
        }
        if what := [each for each, true in wrong.items() if true]:
            yield Claim(
                Verdict.PROVEN,
                what[0],
                got=told,
                expected=f"each row in {batch.allowed} update{'s' * (batch.allowed > 1)}, once in each",
                specificity=2.6,
            )


def _used(rows: Sequence[int], *, allowed: int = 1, whole: bool = True, twice: Sequence[str] = ()) -> Step:
    fact = {"rows": rows, "allowed": allowed, "whole": whole, "twice": twice, "most": "s0", "least": "s7"}
    return changed_step(example_step(), facts={"uses": [fact]})


def example() -> Step:
    """The first minibatch of two was taken in the place of the second, too."""
    return _used([4, 0, 4])


def passes() -> Step:
    """Two declared passes over the batch."""
    return _used([0, 0, 8], allowed=2)


def to_come() -> Step:
    """The first half of a batch; the second is to come."""
    return _used([4, 4], whole=False)


RULE = Rule(
    code="OPT011",
    name="rows-used-unevenly",
    kind="E",
    needs=("facts.uses",),
    taints=("sft", "policy", "critic"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(passes, to_come),
)
