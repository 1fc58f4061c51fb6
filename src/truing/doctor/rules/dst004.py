"""DST004: The ranks clip by different norms.

What: The norm that decides how far the gradient is clipped is not the same on all ranks: each took that of
its own part of the weights, or of its own samples.

Why it is silent: The norm of a part is a plausible number, smaller than the whole's by a factor of about
the square root of the number of ranks. Large gradients are clipped less than declared, and each rank scales
its part of the weights by another factor, so that the step has another direction.

How it is measured: Each rank reports the norms by which it clipped, of policy and critic, in each step.
All must be equal up to rounding.

Healthy look-alikes: Norms that differ in a last digit. A gradient far below the limit is not clipped; its
reported norm must be that of the whole all the same.

Fix: Take the norm over the shards of all ranks: `full_tensor` of the norm of DTensors, or the root of the
sum of squares, reduced over ranks, before clipping.

References: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html, docs/scale.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-5
"""Relative, of a norm in another order."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim the first gradient with unequal norms: of policy and critic, in each optimizer step."""
    ranks, state = step.facts["ranks"]["norms"], step.facts["ranks"]["state"]
    norms = [
        (part, by_rank)
        for of_optimizer_step in zip(*ranks, strict=True)
        for part, by_rank in zip(("policy", "critic"), zip(*of_optimizer_step, strict=True), strict=False)
    ]
    apart = [each for each in norms if max(each[1]) - min(each[1]) > ROUNDING * max(each[1])]
    for part, by_rank in apart[:1]:
        limit = step.setup.max_grad_norm
        clipped = "" if limit is None else f", clipped to {limit:g}"
        # norms of gradients that were not summed over ranks differ as well, and then weights do
        weights_differ = len(set(state.get(f"{part} weights", ()))) > 1
        yield Claim(
            Verdict.PROVEN,
            f"each rank clips the {part}'s gradient by a norm of its own",
            got=", ".join(f"rank {rank}: {norm:.5g}" for rank, norm in enumerate(by_rank)) + clipped,
            expected="one norm, of the whole gradient",
            specificity=0.8 if weights_differ else 2.9,
        )


def _norms(*by_rank: float) -> Step:
    ranks = {"state": {}, "norms": [[[norm]] for norm in by_rank], "rows": []}
    return changed_step(example_step(setup={"max_grad_norm": 1.0}), facts={"ranks": ranks})


def example() -> Step:
    """Each rank took the norm of its shards."""
    return _norms(1.2, 0.9)


def rounded() -> Step:
    """A last digit differs."""
    return _norms(1.2, 1.2000001)


RULE = Rule(
    code="DST004",
    name="clip-norm-of-a-rank",
    kind="E",
    needs=("facts.ranks",),
    taints=("sft", "policy", "critic"),
    applies=lambda step: "ranks" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(rounded,),
)
