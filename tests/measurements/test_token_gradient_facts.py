"""Weights that must move: those whose update is larger than rounding."""

import pytest
import torch

from truing.measurements.weight_digests import weights_due_to_move


@pytest.mark.parametrize(
    ("size", "gradient", "rate", "moves"),
    [
        (1.0, 1e-3, 1e-3, True),
        (1.0, 1e-3, 1e-8, False),  # half a digit of 1 is 6e-8: the end of a schedule
        (1e-4, 1e-3, 1e-8, True),
        (1.0, 1e-9, 1e-3, False),  # AdamW's ε is larger than that gradient
    ],
)
def test_a_weight_must_move_where_its_update_is_more_than_a_digit(size, gradient, rate, moves):
    weight = torch.nn.Parameter(torch.full((4,), size))
    weight.grad = torch.full((4,), gradient)
    assert weights_due_to_move({"w": weight}, 0, rate) == (["w"] if moves else [])
