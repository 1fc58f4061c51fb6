"""DST002: A sample was computed by no rank, or by several.

What: The samples of an optimizer step are shared among ranks. One with a gradient was computed by none, since
a rank skipped a micro-batch, or by more than one.

Why it is silent: The loss divides by the tokens of all samples in any case, so a lost sample makes the
gradient a little smaller and a doubled one a little larger. Each rank's own numbers are right.

How it is measured: Each rank counts the backward passes of every sample, and the counts of all are added up.
Each sample with a gradient in some term of the loss must have one in each optimizer step that it is in. In
TRL two ranks must not have the same example, or with GRPO groups of the same prompt, unless the dataset has
it as often.

Healthy look-alikes: A sample without any gradient, such as one with an advantage of 0: no rank computes it. A
rank without samples, which computes one and drops the result. Several declared passes over a batch: each
optimizer step counts by itself. The last optimizer step of an epoch, which accelerate fills with the first
examples: the rule does not compare it.

Fix: Look at how samples are split: a last micro-batch that is dropped, a sampler that pads each share to one
length by repeating samples, a share that depends on state of the rank. In TRL: a data loader that was not
prepared by accelerate, so that each process reads all examples.

References: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler,
docs/scale.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim lost and doubled samples and examples, of the first optimizer step that has any."""
    optimizer_steps = step.facts["ranks"]["rows"]
    for lost in [each for each in optimizer_steps if each["missing_count"]][:1]:
        who = f": rank {', '.join(map(str, lost['idle']))} skipped them" if lost["idle"] else ""
        samples = with_count(lost["due"], "sample")
        yield _claim(
            f"no rank computed {lost['missing_count']} of {samples} with a gradient{who}",
            f"no backward pass of {', '.join(lost['missing'])}",
        )
    for doubled in [each for each in optimizer_steps if each["twice_count"]][:1]:
        name, ranks = doubled["twice"][0]
        who = f"ranks {' and '.join(map(str, ranks))}" if len(ranks) > 1 else f"rank {ranks[0]}, twice"
        yield _claim(
            f"{with_count(doubled['twice_count'], 'sample')} counted more than once in one optimizer step",
            f"{name} was computed by {who}",
        )
    for shared in [each for each in optimizer_steps if each.get("shared_count")][:1]:
        name, ranks = shared["shared"][0]
        yield _claim(
            f"ranks {' and '.join(map(str, ranks))} train on the same examples:"
            f" {with_count(shared['shared_count'], 'sample')} of the first",
            f"the example of {name} once more on another rank",
            "each example on one rank: the dataset has it once",
        )


def _claim(what: str, got: str, expected: str = "one backward pass of each sample, on one rank") -> Claim:
    return Claim(Verdict.PROVEN, what, got=got, expected=expected, specificity=3.1)


def _rows(**known: object) -> Step:
    fact = {"due": 8, "missing": [], "missing_count": 0, "idle": [], "twice": [], "twice_count": 0}
    rows = [fact | {"of_rank": []} | known]
    return changed_step(example_step(), facts={"ranks": {"state": {}, "norms": [], "rows": rows}})


def example() -> Step:
    """The last micro-batch of a rank is dropped."""
    return _rows(missing=["s6", "s7"], missing_count=2, idle=[1])


def without_gradient() -> Step:
    """Half of the samples have no gradient."""
    return _rows(due=4)


RULE = Rule(
    code="DST002",
    name="row-not-computed-once",
    kind="E",
    needs=("facts.ranks",),
    taints=("sft", "policy", "critic"),
    applies=lambda step: "ranks" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(without_gradient,),
)
