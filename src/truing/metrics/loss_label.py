"""The loss label of a step: one word, and a sentence with the numbers."""

from dataclasses import dataclass

from torch import Tensor

from truing.errors import InvalidValueError
from truing.metrics.token_numbers import token_ratio
from truing.ops.losses import Objective
from truing.ops.ratios import clip_mask
from truing.types.step_table import StepTable

ROUNDING = 1e-3
"""A ratio this near to 1 is 1 to rounding: log-probabilities change by 4e-5 with the batch size."""


@dataclass(frozen=True)
class LossLabel:
    """The recorded word, and the sentence that explains it."""

    label: str
    text: str


def loss_label(table: StepTable, objective: Objective | None, *, loss: float, grad_norm: float) -> LossLabel:
    """Return the kind of a step, and so whether its loss and gradient are plausible.

    Args:
        table: with the passes of one optimizer step, at least one.
        objective: the policy loss; None where there is none.
        loss: total loss.
        grad_norm: norm of its gradient, before clipping.

    Returns:
        ``all_masked``, ``no_signal``, ``zero_gradient`` (the one fault), ``on_policy``, ``off_policy`` or
        ``supervised``.
    """
    trained, policy = int(table.trained.sum()), int(table.policy.sum())
    numbers = f"loss {loss:.3g}, gradient norm {grad_norm:.3g}"
    if not trained:
        return LossLabel("all_masked", f"none of {len(table.trained)} tokens is trained; {numbers}")
    if not policy or objective is None:
        if grad_norm == 0:
            return LossLabel(
                "zero_gradient", f"{trained} tokens are trained and the gradient is 0; {numbers}"
            )
        return LossLabel("supervised", f"{trained - policy} demonstrated tokens are trained; {numbers}")
    ratio_N, advantage_N, logprob_N = (
        stream[table.policy]
        for stream in (
            token_ratio(table, objective.ratio),
            table.stream("advantage"),
            table.stream("new_logprob"),
        )
    )
    return _policy_label(ratio_N, advantage_N, logprob_N, objective, grad_norm, numbers)


def _policy_label(
    ratio_N: Tensor,
    advantage_N: Tensor,
    logprob_N: Tensor,
    objective: Objective,
    grad_norm: float,
    numbers: str,
) -> LossLabel:
    """Return the label of a step of policy terms, from its N policy tokens: NaN where not computed."""
    tokens = len(advantage_N)
    if not advantage_N.any():
        suffix = ", so only other terms of the loss have a gradient" if grad_norm else ""
        text = f"all groups have equal rewards: {tokens} advantages are 0{suffix}; {numbers}"
        return LossLabel("no_signal", text)
    scored_N = ~(ratio_N + advantage_N + logprob_N).isnan()
    if not scored_N.any():
        raise InvalidValueError(
            "no policy token has both an advantage and its log-probabilities", expected="some"
        )
    rewarded_N = scored_N & (advantage_N != 0)
    certain_N = logprob_N == 0  # the only possible token: its gradient is exactly 0
    if not (rewarded_N & ~certain_N).any():
        return LossLabel("no_signal", f"every token with an advantage was the only possible one; {numbers}")
    clipped_N = clip_mask(ratio_N, advantage_N, objective.clip_low, objective.clip_high)
    active = int((rewarded_N & ~certain_N & ~clipped_N).sum())
    if active and grad_norm == 0:
        return LossLabel(
            "zero_gradient", f"{active} of {tokens} tokens should have a gradient and it is 0; {numbers}"
        )
    drift = float((ratio_N[scored_N] - 1).abs().max())
    if drift <= ROUNDING:
        mean = float(advantage_N.nanmean())
        meaning = {
            "clip": (
                f"the policy loss is minus the mean advantage ({mean:.2g} over tokens), weighted by the"
                " objective: a value near 0 is expected; masks that drop part of a group move it"
            ),
            "cispo": "only the gradient of this policy loss is meaningful, not its value",
            "reinforce": "only the gradient of this policy loss is meaningful, not its value",
        }[objective.surrogate]
        return LossLabel("on_policy", f"ratios are 1 to {drift:.1g}, so {meaning}; {numbers}")
    clipped = int(clipped_N.sum())
    text = f"ratios differ from 1 by up to {drift:.2g}; {clipped} of {tokens} tokens are clipped; {numbers}"
    return LossLabel("off_policy", text)
