"""AdamW's step in float64, and the share of a weight's entries that rounding leaves as they were."""

import math

import pytest
import torch

from truing.config import OptimizerConfig
from truing.doctor.rules.opt003 import RULE, other_settings
from truing.measurements.adamw_float64 import recompute_weight


def stepped(dtype, rate, gradient=1.0):
    """Return a recomputed weight after AdamW took the step: entries from 1 to 2."""
    weight = torch.nn.Parameter(torch.linspace(1, 2, 64).to(dtype))
    weight.grad = torch.full_like(weight, gradient)
    cfg = OptimizerConfig(weight_decay=0.0)
    optimizer = torch.optim.AdamW(
        [weight], lr=rate, betas=(cfg.beta1, cfg.beta2), eps=cfg.eps, weight_decay=0.0
    )
    recomputed = recompute_weight("w", weight, optimizer, cfg)
    optimizer.step()
    assert recomputed is not None
    return recomputed


@pytest.mark.parametrize(
    ("dtype", "rate", "share"),
    [
        (torch.float32, 1e-4, 0.0),
        (torch.bfloat16, 1e-4, 1.0),  # the last digit of a number from 1 to 2 is 2⁻⁷ = 0.008
        (torch.bfloat16, 2.0**-7, 0.0),
        (torch.float32, 1e-9, 1.0),
    ],
)
def test_a_step_below_half_of_the_last_digit_is_swallowed(dtype, rate, share):
    assert stepped(dtype, rate).swallowed_share() == share


def test_without_a_gradient_nothing_is_due():
    assert math.isnan(stepped(torch.bfloat16, 1e-4, gradient=0.0).swallowed_share())


def test_the_step_in_float64():
    """At the first step AdamW moves each entry by the rate."""
    fact = stepped(torch.float32, 1e-3).fact()
    assert fact["step"] == pytest.approx(1e-3, rel=1e-6)
    assert fact["largest"] < fact["rounding"]


def test_settings_of_the_optimizer_that_are_not_the_recipes_are_claimed():
    (claim,) = RULE.judge(other_settings())
    assert claim.what == "the optimizer has other settings than the recipe declares"
    assert claim.got == "weight_decay of the critic: 0.1, declared 0.0"
