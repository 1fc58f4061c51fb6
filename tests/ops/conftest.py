"""What the tests of the losses share: one ragged batch, and a loss over its own denominator."""

from types import SimpleNamespace

import pytest
import torch

from truing.ops.aggregate import denominator
from truing.ops.losses import policy_loss

LENGTHS_B = torch.tensor([5, 2, 4, 1])
BUDGET = 9


def batch(seed=0):
    """Four ragged sequences [4, 5] whose policy has moved enough to clip on both sides; pads are NaN."""
    generator = torch.Generator().manual_seed(seed)
    mask_BT = torch.arange(5) < LENGTHS_B[:, None]
    logprob_BT = -torch.rand(4, 5, generator=generator, dtype=torch.float64) - 0.5
    old_BT = logprob_BT + 0.5 * torch.randn(4, 5, generator=generator, dtype=torch.float64)
    advantage_B = torch.tensor([1.0, -0.5, -1.5, 2.0], dtype=torch.float64)
    pads_BT = torch.where(mask_BT, 0.0, float("nan"))
    return logprob_BT + pads_BT, old_BT + pads_BT, advantage_B[:, None] + pads_BT, mask_BT


def loss_of(objective, logprob_BT, old_BT, advantage_BT, mask_BT):
    total = denominator(mask_BT.sum(dim=1), objective.aggregation, BUDGET)
    return policy_loss(logprob_BT, old_BT, advantage_BT, mask_BT, objective=objective, denominator=total)


def with_gradient(loss, x_BT):
    """A loss at ``x_BT``, and its gradient there."""
    x_BT = x_BT.clone().requires_grad_()
    value = loss(x_BT)
    (gradient_BT,) = torch.autograd.grad(value, x_BT)
    return value.detach(), gradient_BT


@pytest.fixture(scope="session")
def case():
    return SimpleNamespace(
        batch=batch, loss_of=loss_of, with_gradient=with_gradient, lengths_B=LENGTHS_B, budget=BUDGET
    )
