"""VAL002: The critic predicts no better than a constant, or its score is wrong.

What: The explained variance is not above 0 after many steps, or the reported number differs from the
recorded values and returns.

Why it is silent: The value loss falls whenever returns vary less, independent of the critic. Users read an
explained variance as the critic's health; computed after the optimizer steps, or without the mean of the
errors, it is too high.

How it is measured: 1 − Σ (R − V)² ÷ Σ (R − mean R)² over sampled tokens, in float64, with V before the
optimizer steps. The second claim uses the reported numbers of the last ten steps, of a stage with at least
twenty. Another trainer's log has only the score, mostly 1 − var(R − V) ÷ var R, which is never lower than
this one: there the mean of the last ten counts, and must be above 0.02.

Healthy look-alikes: A new critic, whose head begins at 0: its score is 0 or less at first. Returns that the
prompt does not predict: then no critic does better, and the run cannot distinguish that from a critic that
does not learn. Equal returns, which have no score. Other trainers subtract the mean error first: the rule
does not compare theirs.

Fix: Check whether the head moves (VAL001) and whether the critic learns a constant return (`truing probes`,
P9). If both hold, the returns are unpredictable, and a group baseline is cheaper.

References: https://arxiv.org/abs/2006.05990
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.rule import Rule, has_critic
from truing.doctor.rules.adv006 import valued
from truing.doctor.verdict import Claim, Verdict
from truing.types.step_table import StepNumbers
from truing.types.token import Origin

ROUNDING = 1e-5
"""Of the quotient: float64 leaves 1e-12."""

LAST, STEPS = 10, 20

CENTRED = "value/centred_explained_variance"
HARDLY = 0.02
"""Of the variance: the score of a constant critic, from the constant added to the divisor."""


class Measured(NamedTuple):
    """The explained variance as reported, as recomputed, and over the last steps."""

    shown: float
    value: float  # NaN without one
    tokens: int
    steps: int  # of the stage so far
    best: float  # of the last ten
    ours: bool
    centred: float = math.inf  # another trainer's score, the mean of the last ten


def measure(step: Step) -> Measured:
    """Recompute in float64, and read the history of reported numbers; for a log of scalars that alone."""
    if "value" not in step.tokens:
        scores, steps = _last(step, CENTRED)
        centred = math.fsum(scores) / LAST if len(scores) == LAST else math.inf
        return Measured(math.nan, math.nan, 0, steps, math.inf, False, centred)
    value_N, returns_N = step.tokens["value"].double(), step.tokens["returns"].double()
    known_N = ~(value_N.isnan() | returns_N.isnan())
    if "origin" in step.tokens:
        known_N &= step.tokens["origin"] == Origin.SAMPLED
    reported = step.metrics["value/explained_variance"]
    last, steps = _last(step, "value/explained_variance")
    return Measured(
        reported,
        _explained(value_N[known_N], returns_N[known_N]),
        int(known_N.sum()),
        steps,
        max(last) if len(last) == LAST else math.inf,
        step.setup.trainer == "truing",
    )


def _last(step: Step, name: str) -> tuple[list[float], int]:
    """Return a metric's known values in the last ten steps, and the number of steps."""
    history = [past.metrics.get(name, math.nan) for past in step.past_of_stage] + [step.metrics[name]]
    return [each for each in history[-LAST:] if math.isfinite(each)], step.steps_before + 1


def _explained(value_n: torch.Tensor, returns_n: torch.Tensor) -> float:
    """Return 1 − squared errors ÷ squared deviations; NaN if returns do not vary."""
    if not len(returns_n) or returns_n.max() == returns_n.min():
        return math.nan
    return float(1 - (returns_n - value_n).square().sum() / (returns_n - returns_n.mean()).square().sum())


def judge(step: Step) -> Iterator[Claim]:
    """Claim a wrong score as proof; a score that stays at 0 has two explanations."""
    measured = measure(step)
    apart = abs(measured.shown - measured.value)
    if not measured.tokens and (measured.steps < STEPS or math.isinf(measured.centred)):
        yield Claim(Verdict.NOT_CHECKED, f"{STEPS} steps with the explained variance")
    if measured.ours and apart > ROUNDING * max(1.0, abs(1 - measured.value)):  # false for NaN
        yield Claim(
            Verdict.PROVEN,
            "the explained variance differs from the recorded values and returns",
            got=f"{measured.shown:.6g}",
            expected=f"{measured.value:.6g} over {measured.tokens} tokens",
            specificity=1,
        )
    if measured.steps >= STEPS and (measured.best <= 0 or measured.centred <= HARDLY):
        yield Claim(
            Verdict.CANNOT_TELL,
            f"over the last {LAST} of {measured.steps} steps the critic predicted no better than a constant:"
            " it is not trained, or the returns are unpredictable",
            got=f"an explained variance of at most {measured.best:.3g}"
            if measured.best <= 0
            else f"a mean explained variance of {measured.centred:.3g}",
            expected="more than 0",
            remedy="check whether the head moves (VAL001), and run `truing probes`: P9 has a predictable"
            " return",
        )


def scored() -> Step:
    """A critic that explains a part, with a right score."""
    step = valued()
    known_N = ~step.tokens["returns"].isnan()
    explained = _explained(step.tokens["value"][known_N].double(), step.tokens["returns"][known_N].double())
    return changed_step(step, metrics={"value/explained_variance": explained})


def example() -> Step:
    """The reported score is that after the optimizer steps."""
    return changed_step(scored(), metrics={"value/explained_variance": 0.9})


def new() -> Step:
    """A new critic, not above 0 in its first steps."""
    step = scored()
    scores = [StepNumbers("grpo", number, {"value/explained_variance": -0.5}, {}) for number in range(5)]
    return changed_step(step, past=scores)


RULE = Rule(
    code="VAL002",
    name="explained-variance",
    kind="S",
    needs=(
        "value | metrics.value/centred_explained_variance",
        "returns | metrics.value/centred_explained_variance",
    ),
    taints=("metrics",),
    applies=lambda step: (
        CENTRED in step.metrics
        or ("value/explained_variance" in step.metrics if "value" in step.tokens else has_critic(step))
    ),
    judge=judge,
    example=example,
    lookalikes=(scored, new),
)
