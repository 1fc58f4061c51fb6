"""OPT005: The gradient is 0 or not finite.

What: For five updates in a row the gradient is exactly 0, although tokens have advantages, or the batch has
demonstrations. Or a term of the loss, or the gradient norm, is not finite.

Why it is silent: A loss near 0 is right in GRPO, so it raises no alarm. A gradient of 0 with it means a
detached loss, an empty mask, or weights that require no gradient. A scaler skips infinite gradients without
a message.

How it is measured: The norms of this update and the four before it, in steps with a largest advantage above
0, a token gradient and an uncertain token. For a trainer without recorded advantages: in steps whose groups
do not all have equal rewards. If a log has a record for every ten updates, the norm is of the last of them
alone, and the share of groups of equal reward is a mean. The probability that all groups of that one update
have equal rewards is at most that share, and the rule multiplies the probabilities of records in a row.
Terms of the loss and the norm must be finite.

Healthy look-alikes: Steps in which all groups have equal rewards. A policy that is certain of every token:
its log-probabilities are 0, and so is their gradient. A clip that cuts every token. One infinite norm under
a gradient scaler, which is searching for its factor.

Fix: Check whether the loss requires a gradient, and trace it back: `no_grad`, `detach`, a reference scored
in place of the policy. For numbers that are not finite inspect the step's tokens first (`truing tokens`).

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
"""Of a row of records, each of several updates, all of whose last ones have equal rewards."""


class Measured(NamedTuple):
    """Updates in a row with a signal and no gradient, and numbers that are not finite."""

    without: int
    advantage: float  # the largest of this step
    not_finite: tuple[str, ...]
    chance: float  # bound on the probability that they had no signal: 0 if each record is of one update


def measure(step: Step) -> Measured:
    """Count back from this update, and check its numbers."""
    numbers = [step.numbers, *(past.numbers for past in reversed(step.latest))]
    supervised = step.setup.algo in ("sft", "rft")
    without, chance = 0, 0.0 if step.setup.logged_every == 1 else 1.0
    for each in numbers:
        if each.get("grad/norm") != 0 or not _has_signal(each, supervised):
            break
        without += 1
        chance *= each.get("group/zero_variance_share", 1.0)
    reported = {
        name: x for name, x in step.numbers.items() if name.startswith("loss/") or name == "grad/norm"
    }
    return Measured(
        without,
        step.numbers.get("advantage/max_abs", 0.0),
        tuple(name for name, value in reported.items() if not math.isfinite(value)),
        0.0 if supervised else chance,  # demonstrations always have a signal
    )


def _has_signal(numbers: Mapping[str, float], supervised: bool) -> bool:
    """Return whether a step has a signal, by its metrics."""
    if supervised:
        return numbers.get("loss/supervised", numbers.get("loss/total", 0.0)) > 1e-3
    uncertain = numbers.get("entropy/mean", numbers.get("entropy/sampled", 0.0)) > 1e-2
    active = numbers.get("clip/active_share", 1.0) > 0
    # a group with unequal rewards has advantages, at any scale
    spread = numbers.get("advantage/max_abs", 1 - numbers.get("group/zero_variance_share", 1.0))
    return spread > 0 and uncertain and active


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim several updates in a row: a single one may be chance."""
    if measured.not_finite:
        yield Claim(
            Verdict.SUSPECT,
            f"{', '.join(measured.not_finite)} {'is' if len(measured.not_finite) == 1 else 'are'} not finite",
            expected="finite numbers",
            specificity=2,
        )
    if measured.without >= STEPS and measured.chance < CHANCE:
        yield Claim(
            Verdict.SUSPECT,
            f"{measured.without} updates in a row had a signal, and a gradient of exactly 0",
            got=f"a norm of 0 with advantages of up to {measured.advantage:.3g}"
            if measured.advantage
            else "a norm of 0",
            expected="a gradient",
            specificity=1.5,
        )


def example() -> Step:
    """The loss is detached."""
    known = {"grad_norm": 0.0, "advantage_max_abs": 1.0, "entropy_mean": 1.0}
    numbers = {"grad/norm": 0.0, "advantage/max_abs": 1.0, "entropy/mean": 1.0}
    still = {"weights": {"before": "a", "after": "a", "next": "a"}}
    return changed_step(
        example_step(), numbers=numbers, facts=still, past=[past_step(number, **known) for number in range(4)]
    )


def equal() -> Step:
    """All groups of the last steps have equal rewards."""
    known = {"grad_norm": 0.0, "advantage_max_abs": 0.0, "entropy_mean": 1.0}
    return changed_step(example(), past=[past_step(number, **known) for number in range(4)])


def every_fifth() -> Step:
    """A log of every fifth update; most groups have equal rewards, and in some updates all have."""
    known = {"grad_norm": 0.0, "group_zero_variance_share": 0.8, "entropy_mean": 0.1}
    numbers = {"grad/norm": 0.0, "group/zero_variance_share": 0.8, "entropy/mean": 0.1}
    past = [past_step(number, **known) for number in range(9)]
    return changed_step(example_step(setup={"logged_every": 5}), numbers=numbers, past=past)


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
