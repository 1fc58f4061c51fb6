"""VAL003: The gradient of values differs from the declared value loss.

What: The gradient of the loss with respect to each value of the critic differs from that of half the
squared error, averaged over all tokens that the policy chose, with the declared weight.

Why it is silent: A critic with the wrong weight still learns, faster or slower, and disturbs the trunk that
it shares with the policy. With the wrong sign it moves away from the returns; with a small error that takes
long to show. No scalar shows its weight.

How it is measured: For each value the gradient of the squared error has a closed form: returns minus value,
times the declared weight, divided by the number of tokens, and 0 where the declared clip holds. The rule
compares the recorded gradient with it, token by token, in each optimizer step. Before the first of them no
weight has moved, so the values are those of the samples, up to rounding, unless there is dropout; later they
are those of the optimizer step's own forward.

Healthy look-alikes: Right values have no gradient. A value exactly at a bound of the clip: such tokens are
not compared. With a masked policy its values are trained all the same.

Fix: A constant factor is a weight or a denominator: count the tokens of the whole minibatch, before it is
split. Another pattern is a mask: the critic learns at every token that the policy chose.

References: https://arxiv.org/abs/2005.12729, https://arxiv.org/abs/2006.05990
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.oracle.token_gradients import expected_value_gradients
from truing.doctor.rule import Rule, has_critic
from truing.doctor.rules.adv006 import valued
from truing.doctor.token_places import Places, optimizer_steps_text, places
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-3
"""Of the largest expected gradient: float32 leaves 1e-5."""

SMALLEST = 1e-4
"""Reward units ÷ tokens: below it, the difference of two forwards of a critic is as large as its error."""


DIGITS = 2.0**-5
"""Of a value: by less two forwards of the same weights may differ in bfloat16."""


class Measured(NamedTuple):
    """Differences between the gradient of values and its closed form, in one optimizer step."""

    where: Places  # tokens beyond rounding
    largest: float  # difference
    scale: float  # the largest expected
    factor: float  # got ÷ expected


def _compared(step: Step, number: int) -> Measured:
    assert step.setup.value_coef is not None
    old_N, returns_N = (step.stream(name).nan_to_num() for name in ("value", "returns"))
    unmoved = number == 0 and step.setup.dropout is False
    new_N = step.stream("new_value").nan_to_num()
    # no weight has moved, so a value of its own can be another by rounding alone
    value_N = torch.where((new_N - old_N).abs() <= DIGITS * old_N.abs(), new_N, old_N) if unmoved else new_N
    in_minibatch_N = (step.optimizer_step_of_sample == number)[step.sample_of_token]
    mask_N = step.tokens["value_mask"].bool() & in_minibatch_N
    expected_N = expected_value_gradients(
        value_N, old_N, returns_N, mask_N, step.setup.value_coef, step.setup.value_clip
    )
    got_N = torch.where(expected_N.isnan(), 0.0, step.stream("value_gradient").nan_to_num())
    expected_N = expected_N.nan_to_num()
    scale, tokens = float(expected_N.abs().max()), int(mask_N.sum())
    difference_N = (got_N - expected_N).abs()
    wrong_N = difference_N > ROUNDING * scale + SMALLEST / max(tokens, 1)
    large_N = expected_N.abs() > 0.5 * scale  # large ones show a factor best
    factor = float((got_N[large_N] / expected_N[large_N]).median()) if large_N.any() else 1.0
    return Measured(places(step, wrong_N, tokens), float(difference_N.max()), scale, factor)


def judge(step: Step) -> Iterator[Claim]:
    """Claim more than rounding of the gradient and of its values, in the first optimizer step that has it."""
    steps = [_compared(at_step, number) for number, at_step in step.at_each_optimizer_step()]
    first = next((measured for measured in steps if measured.where), None)
    if first is not None:
        scaled = abs(first.factor - 1) > ROUNDING
        how = f"is {first.factor + 0.0:.4g} times that" if scaled else "differs at some tokens from that"
        yield Claim(
            Verdict.PROVEN,
            f"the gradient of values {how} of the declared value loss"
            + optimizer_steps_text([measured.where for measured in steps]),
            got=f"{first.where}: up to {first.largest:.3g} off, over {first.where.compared} tokens",
            expected=f"weight × (returns − value) ÷ tokens, at most {first.scale:.3g}",
            **first.where.claim_fields,
            specificity=2.5,
        )


def _with_factor(factor: float, moved: float = 0.0) -> Step:
    """Return a step with a factor of the gradient, whose own values are moved by a share."""
    step = changed_step(valued(), setup={"value_coef": 0.1})
    mask_N = step.tokens["policy_mask"]
    value_N, returns_N = step.stream("value").nan_to_num(), step.stream("returns").nan_to_num()
    new_N = value_N * (1 + moved)
    gradient_N = factor * expected_value_gradients(new_N, value_N, returns_N, mask_N, 0.1, None)
    return changed_step(step, value_mask=mask_N, new_value=new_N.float(), value_gradient=gradient_N.float())


def example() -> Step:
    """The squared error is not halved, although the declared weight is for half of it."""
    return _with_factor(2.0)


def learning() -> Step:
    """A critic that learns as declared."""
    return _with_factor(1 + 1e-6)


def rounded() -> Step:
    """A device in bfloat16 computes other last digits than before."""
    return _with_factor(1.0, moved=2.0**-7)


RULE = Rule(
    code="VAL003",
    name="value-gradient-not-as-declared",
    kind="M",
    needs=("new_value", "value_gradient", "value", "returns", "value_mask", "setup.value_coef"),
    taints=("critic", "policy"),
    applies=has_critic,
    judge=judge,
    example=example,
    lookalikes=(learning, rounded),
)
