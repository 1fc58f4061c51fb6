"""OPT011: Samples of a batch were used more often than others, or than declared.

What: An optimizer step used a sample twice. Or some samples of a batch were in none of its optimizer steps
and others in several. Or a batch was trained after its optimizer steps were over, or its minibatches are not
shuffled as declared.

Why it is silent: Every used sample is a valid sample: masks, ratios, advantages and the closed form of the
gradient fit. A missing sample leaves no trace, and an overused batch learns faster at first.

How it is measured: A second computation of the shuffle gives the samples of each optimizer step, by the
recipe's seed. Samples get names when they are sampled. With each optimizer step the check counts which
samples went forward and backward, and in how many optimizer steps of their batch they were. Over all
optimizer steps of a batch each sample is in as many as the declared passes over the batch.

Healthy look-alikes: Several declared passes over one batch. A batch with skipped or future optimizer steps:
its counts are not final. Samples that no term of the loss uses, and that therefore have no forward.
Accumulation over more micro-batches than a generation has, with several passes: then an optimizer step has
samples twice.

Fix: Check how the code splits a batch into minibatches and micro-batches, and when it fetches the next one:
an index that does not advance, a buffer that is not renewed, an order sampled with replacement.

References: https://arxiv.org/abs/1707.06347, docs/control.md
"""

from collections.abc import Iterator, Sequence

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim samples with other counts than declared."""
    for batch in step.facts["sample_usage"]:
        rows, allowed = batch["rows"], batch["allowed"]  # how many samples are in 0, 1, 2 … optimizer steps
        wrong = {
            f"sample {', '.join(batch['twice'])} is in one optimizer step more than once": batch["twice"],
            f"sample {batch['most']} was trained again after the optimizer steps of its batch": len(rows)
            > allowed + 1,
            f"sample {batch['least']} was trained less often than others of its batch": batch["whole"]
            and any(rows[:allowed]),
        }
        if what := [each for each, true in wrong.items() if true]:
            yield Claim(
                Verdict.PROVEN,
                what[0],
                got=", ".join(f"{count} samples {times} times" for times, count in enumerate(rows) if count),
                expected=f"each sample in {allowed} optimizer step{'s' * (allowed > 1)}, once in each",
                specificity=2.6,
            )
        if other := batch.get("other_minibatches"):
            numbers = ", ".join(str(number + 1) for number in other)
            yield Claim(
                Verdict.PROVEN,
                "minibatches are not those that the seed gives",
                got=f"other samples, or another order, in optimizer step {numbers}",
                expected="every k-th sample of a shuffle of the batch, another shuffle in each inner epoch",
                specificity=2.4,
            )


def _used(rows: Sequence[int], *, allowed: int = 1, whole: bool = True, twice: Sequence[str] = ()) -> Step:
    fact = {"rows": rows, "allowed": allowed, "whole": whole, "twice": twice, "most": "s0", "least": "s7"}
    return changed_step(example_step(), facts={"sample_usage": [fact]})


def example() -> Step:
    """The first of two minibatches is used in place of the second."""
    return _used([4, 0, 4])


def never_shuffled() -> Step:
    """Minibatches are slices of the batch in its order, in each inner epoch."""
    step = passes()
    usage = [{**each, "other_minibatches": [0, 1]} for each in step.facts["sample_usage"]]
    return changed_step(step, facts={"sample_usage": usage})


def passes() -> Step:
    """Two declared passes over the batch."""
    return _used([0, 0, 8], allowed=2)


def to_come() -> Step:
    """The first half of a batch; the second follows."""
    return _used([4, 4], whole=False)


RULE = Rule(
    code="OPT011",
    name="rows-used-unevenly",
    kind="E",
    needs=("facts.sample_usage",),
    taints=("sft", "policy", "critic"),
    judge=judge,
    example=example,
    lookalikes=(passes, to_come),
)
