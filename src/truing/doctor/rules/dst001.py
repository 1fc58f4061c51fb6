"""DST001: The ranks of a run differ in what they must share.

What: After a step one rank has other weights, another critic, reference or optimizer state, another
learning rate, other random numbers, other advantages or an older sampler than the rest.

Why it is silent: Only one rank writes the record, and its own numbers are right. The others compute a part
of the samples with what they have, and the sum of all gradients is a gradient like any other.

How it is measured: After each step every rank sends digests of its weights and its optimizer's moments,
before and after it, and of its critic, its reference and its sampler's weights, two random numbers of the
step's key, its learning rates, the weights of its loss terms, and two sums of its advantages. Digests must
be equal, and numbers equal up to rounding. The draws of each rank are replayed, as in SMP009 (in another
precision than float32 in audits): if all tokens of one rank follow from their random numbers, those of the
others must too. Sharded weights count as a whole: ranks that hold parts of one copy agree, replicas may not.

In TRL the ranks are the processes of accelerate. Each of them sends digests of its weights before and after
the step, of the optimizer's gradient and moments, of frozen and of reference weights, its learning rates,
and its settings.

Healthy look-alikes: Advantages that differ in a last digit between two kinds of processors. One process:
there is nothing to compare.

Fix: The name shows the cause. Weights: a replica that missed a reduction, or read other files. The reference
or the sampler: a sync that not every rank made. Learning rates: a schedule that one rank began again. Random
numbers: a seed to which the rank was added. Advantages: a mean or deviation over the rank's own samples.
Weights before the first step: an initialization with another seed, after the weights were made equal. Weights
or moments before the first step after a resumption: a checkpoint that one rank did not read. Gradients:
`no_sync` that was left on, or a forward of the model below DDP.

References: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html, docs/scale.md
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-5
"""Relative difference of sums of float32 in another order."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim each value that differs by more than rounding; results come after what they follow from."""
    known = step.facts["ranks"]
    for name, values in known["state"].items():
        if max(_difference(values[0], each) for each in values[1:]) > ROUNDING:
            odd = [rank for rank, value in enumerate(values) if value != values[0]]
            yield Claim(
                Verdict.PROVEN,
                f"rank {', '.join(map(str, odd))} has other {name} than rank 0",
                got=_text(values[odd[0]]),
                expected=f"{_text(values[0])} on every rank",
                specificity=SPECIFICITY.get(name, 3.2),
            )
    draws = enumerate(known.get("draws", []))
    sampled = [(rank, tokens, missed) for rank, (tokens, missed) in draws if tokens]
    odd = [rank for rank, tokens, missed in sampled if _are_others(tokens, missed)]
    if odd and any(not missed for _, _, missed in sampled):
        yield Claim(
            Verdict.PROVEN,
            f"rank {', '.join(map(str, odd))} samples with undeclared random numbers",
            got=", ".join(f"rank {rank}: {missed} of {tokens} tokens" for rank, tokens, missed in sampled)
            + " do not follow from their random numbers",
            expected="none on any rank",
            specificity=3.15,
        )


def _difference(first: object, other: object) -> float:
    """Return the relative difference of numbers; infinity of digests that are not equal."""
    if not isinstance(first, list) or not isinstance(other, list) or len(first) != len(other):
        return 0.0 if first == other else math.inf
    pairs = zip(first, other, strict=True)
    return max((abs(a - b) / max(abs(a), abs(b), 1e-300) for a, b in pairs), default=0.0)


MISSED, MOST = 0.5, 0.8
"""Share of tokens: fewer may miss by another distribution; other random numbers miss most. The second one is
of less than ``ENOUGH`` tokens."""

FEW, ENOUGH = 8, 48
"""Tokens for any claim, and for one with the smaller share."""


def _are_others(tokens: int, missed: int) -> bool:
    """Return whether tokens follow from other random numbers."""
    return tokens >= FEW and missed > (MISSED if tokens >= ENOUGH else MOST) * tokens


SPECIFICITY = {
    "policy weights before the step": 3.3,
    "critic weights before the step": 3.3,
    "optimizer moments before the step": 3.3,
    "advantages": 3.1,
    "gradients": 0.9,
    "critic weights": 0.8,
    "policy weights": 0.7,
    "optimizer moments": 0.6,
}
"""By name, if not 3.2. What differs before a step is the cause of what differs after it;
results have less than 3, since a gradient's fault is a better cause."""


def _text(value: object) -> str:
    return ", ".join(f"{x:.6g}" for x in value) if isinstance(value, list) else f"digest {value}"


def _ranks(**state: object) -> Step:
    shared = {"random numbers": [[0.1, 0.7]] * 2, "learning rates": [[1e-3]] * 2, "policy weights": ["a"] * 2}
    facts = {
        "state": shared | {name.replace("_", " "): x for name, x in state.items()},
        "norms": [],
        "rows": [],
    }
    return changed_step(example_step(), facts={"ranks": facts})


def example() -> Step:
    """One replica did not sync its reference."""
    return _ranks(reference_weights=["b", "a"])


def other_draws() -> Step:
    """A rank samples at another temperature: some of its tokens miss, and SMP009 names the cause."""
    return changed_step(_ranks(), facts={"ranks": {**_ranks().facts["ranks"], "draws": [[60, 0], [60, 9]]}})


def rounded() -> Step:
    """Two processors sum advantages in another order."""
    return _ranks(advantages=[[4.0, 2.0], [4.0000002, 2.0]])


RULE = Rule(
    code="DST001",
    name="ranks-differ",
    kind="E",
    needs=("facts.ranks",),
    taints=("sft", "policy", "critic", "reference"),
    applies=lambda step: "ranks" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(rounded, other_draws),
)
