"""SMP004: The sampler draws from another distribution than it should.

What: The sampler's recorded log-probabilities differ from those of a plain forward of the same tokens, and
the trainer's do not. Whatever is wrong is in the sampler: its weights, its processors, its cache, or what it
records.

Why it is silent: What a sampler says of its own draws is believed. The trainer then sees a policy that has
moved before anything was updated, weighs tokens by ratios that mean nothing, and pulls at the wrong ones.

How it is measured: Some rows are scored once more, one at a time, in float32, by the model's own forward and
the declared contract. Both log-probabilities of each token are compared with that. Forty times what a plain
forward differs from itself in another shape is allowed; where nobody measured that, two thousandths of a
nat, or twenty times what the trainer differs from itself.

Healthy look-alikes: An engine in bfloat16 on a GPU, which is off by a tenth of a nat at single tokens: there
the comparison is never proof. Log-probabilities of 0 of tokens that were the only possible ones.

Fix: Compare the contract with what the engine is told: temperature, truncation, penalties, banned stops. Ask
it for log-probabilities after its processors. Check its weights (SMP002, SMP003) before its arithmetic.

References: https://github.com/huggingface/trl/issues/4159, https://github.com/huggingface/trl/issues/6789
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.made import but, made
from truing.doctor.rounding import allowed
from truing.doctor.rounding import measured as rounding
from truing.doctor.rule import Rule, drawn
from truing.doctor.verdict import Claim, Verdict
from truing.words import counted

APART = 2e-3
"""Nats from a plain forward in float32, where nobody measured what a plain forward rounds."""

UNKNOWN = 1.0
"""Nats, where nobody measured what is normal: in bfloat16 a token among thousands is 0.6 off."""


class Measured(NamedTuple):
    """How far each is from a plain forward, nats; NaN where there is none."""

    tokens: int
    sampler: float
    trainer: float
    alone: float  # the trainer, one row at a time
    reference: float  # from a plain forward of its own
    old: float  # what an update before it moves anything is compared with
    null: float | None  # the trainer from itself, or the plain forward
    behind: float  # the plain forward from itself, with other tokens behind
    coarse: bool  # not in float32 on a CPU
    ours: bool  # whether the first update is declared to be by the weights that drew
    row: int | None  # of the token at which the one that is asked for is farthest off
    token: int
    rounding: float | None  # a plain forward from itself in another shape

    @property
    def bound(self) -> float:
        """What both may differ by."""
        found = allowed(self.rounding, self.null, APART)
        return UNKNOWN if found is None else found

    @property
    def sure(self) -> bool:
        """Whether what is normal was measured, on a machine that rounds in float32."""
        return self.null is not None and not self.coarse


def measure(step: Step, of: str = "sampler") -> Measured:
    """As it was compared beside the update."""
    plain = step.facts["plain"]
    sample, token = (plain.get("where") or {}).get(of, ("", 0))
    row = next((index for index, row in enumerate(step.rows) if row.sample_id == sample), None)
    return Measured(
        plain.get("tokens", 0),
        *(plain.get(name, math.nan) for name in ("sampler", "trainer", "alone", "reference", "old")),
        step.facts.get("null", {}).get("logprob", plain.get("itself")),
        plain.get("itself", 0.0),
        plain.get("device", "cpu") != "cpu",
        step.setup.on_policy is not False,
        row,
        int(token),
        rounding(step.facts),
    )


def judge(found: Measured) -> Iterator[Claim]:
    """One of the two is off, and it is the sampler."""
    if found.sampler > found.bound >= found.trainer:
        yield Claim(
            Verdict.PROVEN if found.sure and found.ours else Verdict.SUSPECT,
            f"the sampler is up to {found.sampler:.3g} nats from a plain forward, and the trainer is not",
            got=f"sampler {found.sampler:.3g}, trainer {found.trainer:.3g} over"
            f" {counted(found.tokens, 'token')}",
            expected=f"both within {found.bound:.2g}",
            row=found.row,
            start=found.token,
            end=found.token + 1,
            likely=2,
        )


def plain(**nats: float) -> Step:
    """A step with a plain forward, and how far each is from it."""
    known = {"tokens": 16, "rows": 4, "device": "cpu", "trainer": 3e-6, "alone": 3e-6, "sampler": 2e-5} | nats
    known["where"] = dict.fromkeys(("trainer", "alone", "sampler", "reference", "old"), ("s0", 5))
    return but(made(), facts={"plain": known, "null": {"logprob": 4e-5}})


def example() -> Step:
    """A penalty that only the sampler knows of."""
    return plain(sampler=0.8)


RULE = Rule(
    code="SMP004",
    name="sampler-not-plain",
    kind="M",
    needs=("facts.plain",),
    taints=("policy",),
    when=lambda step: drawn(step) and step.setup.algo not in ("sft", "rft"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(plain,),
)
