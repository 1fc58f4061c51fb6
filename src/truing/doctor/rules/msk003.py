"""MSK003: The token gradient differs from the declared loss.

What: The gradient of the loss with respect to each token's log-probability differs from the closed form of
the declared loss with the recorded advantages, ratios and masks. It reaches tokens it must not reach,
misses some, has the wrong sign, ignores the clip, or has the wrong denominator. Or the gradient with respect
to each token's entropy differs from the weight of the declared bonus.

Why it is silent: A scalar loss hides its gradient. In GRPO it is near 0 in any case, so a shifted mask, a
wrong denominator or a term with the wrong sign leaves no trace in it.

How it is measured: For one token the gradient of every policy loss has a closed form: its advantage, times
its ratio unless the clip cuts it, divided by the denominator of the aggregation, less the slope of the KL
term; that of the entropy bonus with respect to entropies is its weight divided by the denominator, and 0
without one. A second implementation computes both from the record alone, and compares each token in each
optimizer step.

Healthy look-alikes: A gradient of 0 at an advantage of 0, or under the clip. A loss near 0 with a gradient:
right on-policy. The only possible token has a gradient too, and cannot move. A ratio exactly at a bound of
the clip: such tokens are not compared. With inner epochs each optimizer step has ratios of its own. Where no
reward differs and the policy is still its reference, the KL's slopes are rounding.

Fix: Tokens with a gradient that must have none (FORCED, TOOL, PROMPT): the loss uses another mask than the
recorded one; look for a second mask, or one that is lost on the way to the loss. A constant factor is a
denominator, the opposite sign a sign, exchanged neighbours a shift, one whole row a row's own weight. In
some optimizer steps alone: look for what changes between them.

References: https://arxiv.org/abs/1707.06347, https://arxiv.org/abs/2402.03300,
https://arxiv.org/abs/2503.20783
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_token_gradients
from truing.doctor.formulas.usual_changes import ESTIMATORS, WEIGHTS, Change, usual_changes
from truing.doctor.oracle.token_gradients import (
    expected_entropy_gradients,
    expected_token_gradients,
    kl_rounding,
    near_bound,
)
from truing.doctor.rule import Rule, has_gradient, has_policy_loss
from truing.doctor.token_places import Places, claims_of_first, places
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin
from truing.utils.format import with_count

ROUNDING = 1e-3
"""Of the largest expected token gradient: float32 leaves 1e-6."""


class Apart(NamedTuple):
    """Tokens whose gradient differs from its closed form."""

    where: Places
    origins: str  # where they come from
    clipped: bool  # whether each is in the policy mask with an advantage, so that the clip alone excludes it
    got: float  # at the first
    expected: float


class Measured(NamedTuple):
    """Differences between the token gradient and its closed form."""

    extra: Apart  # tokens with a gradient that must have none
    missed: Apart  # tokens without a gradient that must have one
    other: Apart  # tokens with a different gradient
    factor: float  # median of got ÷ expected, over tokens with neither 0
    spread: float  # how far that quotient varies: 0 if all differ by one factor
    entropy: Apart  # tokens whose gradient per entropy differs from that of the declared bonus
    scaled: bool  # whether the factor of the whole loss is unknown
    change: Change | None = None  # of the declared loss, which fits all tokens

    @property
    def wrong(self) -> int:
        """The tokens whose gradient differs."""
        return sum(each.where.tokens for each in (self.extra, self.missed, self.other))


def measure(step: Step) -> list[Measured]:
    """Compare each optimizer step token by token, and look for the change that explains a difference."""
    return [_explained(at_step) for _, at_step in step.at_each_optimizer_step()]


def _explained(step: Step) -> Measured:
    """Compare with the declared loss; where it differs, with changed ones."""
    read = min((_compared(each) for each in _readings(step)), key=lambda each: each.wrong)
    if not read.wrong or read.spread < ROUNDING:
        return read
    for change in usual_changes(step.setup):
        if not _compared(replace(step, setup=replace(step.setup, **change.setup))).wrong:
            return read._replace(change=change)
    return read


def _readings(step: Step) -> Iterator[Step]:
    """Yield the step, with each way to weigh a KL, and each estimator, that another trainer leaves open."""
    setup = step.setup
    if not setup.kl_coef or setup.kl_where != "loss" or setup.trainer == "truing":
        yield step
        return
    for weight in WEIGHTS if setup.kl_weight is None else (setup.kl_weight,):
        for estimator in ESTIMATORS if setup.kl_estimator is None else (setup.kl_estimator,):
            yield replace(step, setup=replace(setup, kl_weight=weight, kl_estimator=estimator))


def _compared(step: Step) -> Measured:
    """Compare one optimizer step; the tolerance follows from float32."""
    expected_N, got_N = expected_token_gradients(step), step.stream("token_gradient").nan_to_num()
    got_N = torch.where(near_bound(step), expected_N, got_N)
    tiny = kl_rounding(step)
    of_each = [max(float(each.abs().max()), 1e-30) * ROUNDING + tiny for each in (got_N, expected_N)]
    scale = max(of_each)
    reached_N, nonzero_N = got_N.abs() > of_each[0], expected_N.abs() > of_each[1]
    both_N = reached_N & nonzero_N
    quotient_N = got_N[both_N] / expected_N[both_N]
    factor = float(quotient_N.median()) if len(quotient_N) else 1.0
    spread = float((quotient_N - factor).abs().max()) if len(quotient_N) else 0.0
    differs_N = (got_N - expected_N).abs() > scale
    compared = int((nonzero_N | reached_N).sum())
    extra, missed, other = (
        _apart(step, each_N & differs_N, got_N, expected_N, compared)
        for each_N in (reached_N & ~nonzero_N, nonzero_N & ~reached_N, both_N)
    )
    unknown = step.setup.loss_scale is None
    return Measured(extra, missed, other, factor, spread, _entropy_apart(step), unknown)


def _entropy_apart(step: Step) -> Apart:
    """Compare the gradients per entropy; nothing where none is on record."""
    got_N = step.stream("entropy_gradient").nan_to_num()
    known = step.has("entropy_gradient")
    expected_N = expected_entropy_gradients(step) if known else torch.zeros_like(got_N)
    scale = max(float(expected_N.abs().max()), float(got_N.abs().max()))
    compared = int(((got_N != 0) | (expected_N != 0)).sum())
    return _apart(step, (got_N - expected_N).abs() > ROUNDING * scale, got_N, expected_N, compared)


def _apart(step: Step, wrong_N: Tensor, got_N: Tensor, expected_N: Tensor, compared: int) -> Apart:
    where = places(step, wrong_N, compared)
    if not where:
        return Apart(where, "", False, 0.0, 0.0)
    origins = step.tokens["origin"][wrong_N].unique().tolist() if "origin" in step.tokens else []
    first = int(wrong_N.nonzero()[0])
    names = ", ".join(Origin(each).name for each in origins)
    in_loss_N = step.stream("policy_mask").bool() & (step.stream("advantage").nan_to_num() != 0)
    clipped = step.setup.surrogate == "clip" and bool(in_loss_N[wrong_N].all())
    return Apart(where, names, clipped, float(got_N[first]), float(expected_N[first]))


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference beyond rounding; the first optimizer step with one names the fault."""
    yield from claims_of_first([list(_claims(measured)) for measured in measure(step)])


def _claims(measured: Measured) -> Iterator[Claim]:
    extra, missed, other = measured.extra.where, measured.missed.where, measured.other.where
    if measured.change:
        apart = max((measured.extra, measured.missed, measured.other), key=lambda each: each.where.tokens)
        what = f"the token gradients are those of the declared loss {measured.change.text}"
        yield replace(_claim(what, apart, 2.55), remedy=measured.change.remedy)
        return
    if entropy := measured.entropy.where:
        yield Claim(
            Verdict.PROVEN,
            f"the loss moves the entropy of {with_count(entropy.tokens, 'token')} otherwise than declared",
            got=f"{entropy}: {measured.entropy.got:.3g} per nat of entropy",
            expected=f"{measured.entropy.expected:.3g}, the weight of the entropy bonus over its denominator",
            **entropy.claim_fields,
            specificity=2.6,
        )
    most = max(each.tokens for each in (extra, missed, other))
    if extra:
        origins = f" ({measured.extra.origins})" if measured.extra.origins else ""
        what = f"{with_count(extra.tokens, 'token')}{origins} outside the declared loss have a gradient"
        if measured.extra.clipped:
            what = f"{with_count(extra.tokens, 'token')} beyond the declared clip have a gradient"
        yield _claim(what, measured.extra, specificity=2 if extra.tokens == most else 1)
    if missed:
        what = f"no gradient reaches {with_count(missed.tokens, 'token')} of the declared loss"
        yield _claim(what, measured.missed, specificity=2 if missed.tokens == most else 1)
    if other:
        if measured.spread < ROUNDING and not extra and not missed:
            sign = (
                "the wrong sign"
                if abs(measured.factor + 1) < ROUNDING
                else f"{measured.factor:.4g} times the declared size"
            )
            what = (
                f"every token gradient has {sign}: a sign, a weight or a denominator differs from the recipe"
            )
            claim = _claim(what, measured.other, specificity=2.5)
            if measured.scaled and measured.factor > 0:
                claim = replace(
                    claim,
                    verdict=Verdict.SUSPECT,
                    remedy="if the trainer multiplies its loss (by the number of ranks, by a loss scaler),"
                    f" declare loss_scale = {measured.factor:.4g}",
                )
            yield claim
        else:
            yield _claim(
                f"{with_count(other.tokens, 'token has', 'tokens have')} a gradient that differs"
                " from the declared loss",
                measured.other,
                specificity=1.5 if other.tokens == most else 1,
            )


def _claim(what: str, apart: Apart, specificity: float) -> Claim:
    where = apart.where
    return Claim(
        Verdict.PROVEN,
        what,
        got=f"{where}: a gradient of {apart.got:.3g}",
        expected=f"{apart.expected:.3g} there, and the closed form at all {where.compared} tokens"
        " of the loss",
        **where.claim_fields,
        specificity=specificity,
    )


def example() -> Step:
    """The loss divides by the tokens of the batch; the recipe declares a mean over sequences first."""
    healthy = example_step()
    mask = healthy.tokens["policy_mask"]
    advantage = torch.where(mask, healthy.tokens["advantage"], 0.0)
    return changed_step(healthy, token_gradient=(advantage / mask.sum()).float())


def entropy_reversed() -> Step:
    """The bonus for entropy has the wrong sign."""
    step = entropy_bonus()
    return changed_step(step, entropy_gradient=-step.tokens["entropy_gradient"])


def entropy_bonus() -> Step:
    """A bonus for entropy, as declared."""
    step = changed_step(example_step(), setup={"entropy_coef": 0.01})
    gradient_N = expected_entropy_gradients(step).masked_fill(~step.tokens["policy_mask"], torch.nan)
    return changed_step(step, entropy_gradient=gradient_N.float())


def minibatches() -> Step:
    """Two minibatches with as many samples and other numbers of tokens: each divides by its own."""
    step = with_optimizer_steps(
        example_step(setup={"inner_steps": 2}), {index: index % 2 for index in range(8)}
    )
    return with_token_gradients(step)


def at_the_reference() -> Step:
    """All rewards are equal, and the policy is its reference: the KL's slopes are rounding."""
    setup = {"kl_coef": 0.05, "kl_where": "loss", "kl_estimator": "k3"}
    step = example_step(rewards=(1.0,) * 8, setup=setup)
    step = changed_step(step, ref_logprob=step.tokens["new_logprob"] - 1e-7)
    slope_N = expected_token_gradients(step)
    coarse_N = (slope_N * 0.9375).masked_fill(~step.tokens["policy_mask"], torch.nan)
    return changed_step(step, token_gradient=coarse_N.float())


RULE = Rule(
    code="MSK003",
    name="gradient-not-as-declared",
    kind="M",
    needs=(
        "token_gradient",
        "policy_mask",
        "advantage",
        "new_logprob",
        "old_logprob",
        "setup.surrogate",
        "setup.aggregation",
        "setup.plain",
    ),
    taints=("policy",),
    applies=lambda step: has_policy_loss(step) and step.setup.plain is not False and has_gradient(step),
    judge=judge,
    example=example,
    lookalikes=(minibatches, at_the_reference, entropy_bonus),
)
