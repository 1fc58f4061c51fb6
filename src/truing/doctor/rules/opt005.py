"""OPT005: The gradient is nothing, or not a number.

What: For five updates in a row the gradient is exactly 0, though tokens have advantages, or demonstrations
are shown; or a term of the loss, or the norm of the gradient, is not finite.

Why it is silent: A loss near 0 is right in GRPO, so nobody doubts it. A gradient of 0 beside it is a loss
that was detached, a mask that is empty, or weights that require none. A scaler that skips infinite
gradients skips them without a word.

How it is measured: The norms of this update and the four before it, in steps whose largest advantage is not
0, where something pulls and something is left to chance. Of a trainer that does not tell its advantages:
in which not all groups are of equal reward. Where a log has a record for every ten updates, the norm is of
the last of them alone, and the share of groups of equal reward a mean: that all groups of that one update
were of equal reward has a chance of that share at most, and the chances of records in a row are multiplied.
Terms of the loss and the norm must be finite.

Healthy look-alikes: Steps in which all groups are of equal reward. A policy that is certain of every token:
its log-probabilities are 0, and so is their gradient. A clip that holds every token back. One infinite norm
under a gradient scaler, which is looking for its factor.

Fix: Ask the loss whether it requires a gradient, and follow it back: `no_grad`, `detach`, a reference that
was scored in place of the policy. For numbers that are not finite look at the step's tokens first (`truing
tokens`).

References: https://github.com/huggingface/trl/issues/3452, https://arxiv.org/abs/1710.03740
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

STEPS = 5

CHANCE = 1e-6
"""Of a row of records, each of several updates, whose last ones all had nothing to learn."""


class Measured(NamedTuple):
    """Updates in a row without a gradient that had something to learn, and numbers that are none."""

    without: int
    advantage: float  # the largest of this step
    not_finite: tuple[str, ...]
    chance: float  # at most, that they had nothing to learn: 0 where each record is of one update


def measure(step: Step) -> Measured:
    """Count back from this update, and look through its numbers."""
    numbers = [step.numbers, *(past.numbers for past in reversed(step.past_of_stage))]
    supervised = step.setup.algo in ("sft", "rft")
    without, chance = 0, 0.0 if step.setup.logged_every == 1 else 1.0
    for each in numbers:
        if each.get("grad/norm") != 0 or not _has_signal(each, supervised):
            break
        without += 1
        chance *= each.get("group/zero_variance_share", 1.0)
    shown = {name: x for name, x in step.numbers.items() if name.startswith("loss/") or name == "grad/norm"}
    return Measured(
        without,
        step.numbers.get("advantage/max_abs", 0.0),
        tuple(name for name, value in shown.items() if not math.isfinite(value)),
        0.0 if supervised else chance,  # demonstrations always teach
    )


def _has_signal(numbers: Mapping[str, float], supervised: bool) -> bool:
    """Whether something should pull, by the metrics of a step."""
    if supervised:
        return numbers.get("loss/supervised", numbers.get("loss/total", 0.0)) > 1e-3
    uncertain = numbers.get("entropy/contract", numbers.get("entropy/drawn", 0.0)) > 1e-2
    pulling = numbers.get("clip/active_share", 1.0) > 0
    # a group whose rewards differ has advantages, however they are scaled
    spread = numbers.get("advantage/max_abs", 1 - numbers.get("group/zero_variance_share", 1.0))
    return spread > 0 and uncertain and pulling


def judge(found: Measured) -> Iterator[Claim]:
    """Once may be chance."""
    if found.not_finite:
        yield Claim(
            Verdict.SUSPECT,
            f"{', '.join(found.not_finite)} {'is' if len(found.not_finite) == 1 else 'are'} not finite",
            expected="finite numbers",
            specificity=2,
        )
    if found.without >= STEPS and found.chance < CHANCE:
        yield Claim(
            Verdict.SUSPECT,
            f"{found.without} updates in a row had something to learn, and a gradient of exactly 0",
            got=f"a norm of 0 with advantages of up to {found.advantage:.3g}"
            if found.advantage
            else "a norm of 0",
            expected="a gradient",
            specificity=1.5,
        )


def example() -> Step:
    """The loss is detached."""
    known = {"grad_norm": 0.0, "advantage_max_abs": 1.0, "entropy_contract": 1.0}
    numbers = {"grad/norm": 0.0, "advantage/max_abs": 1.0, "entropy/contract": 1.0}
    still = {"weights": {"before": "a", "after": "a", "next": "a"}}
    return changed_step(
        example_step(), numbers=numbers, facts=still, past=[past_step(number, **known) for number in range(4)]
    )


def equal() -> Step:
    """All groups of the last steps were of equal reward."""
    known = {"grad_norm": 0.0, "advantage_max_abs": 0.0, "entropy_contract": 1.0}
    return changed_step(example(), past=[past_step(number, **known) for number in range(4)])


def every_fifth() -> Step:
    """A log of every fifth update, where most groups are of equal reward: in some updates all are."""
    known = {"grad_norm": 0.0, "group_zero_variance_share": 0.8, "entropy_contract": 0.1}
    numbers = {"grad/norm": 0.0, "group/zero_variance_share": 0.8, "entropy/contract": 0.1}
    told = [past_step(number, **known) for number in range(9)]
    return changed_step(example_step(setup={"logged_every": 5}), numbers=numbers, past=told)


RULE = Rule(
    code="OPT005",
    name="no-gradient",
    kind="S",
    needs=("numbers.grad/norm",),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(equal, every_fifth),
)
