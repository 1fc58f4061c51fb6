"""Weights that must move: those whose update is larger than rounding."""

import pytest
import torch

from truing.measurements import weight_digests
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
    optimizer = torch.optim.AdamW([weight], lr=rate)
    assert weights_due_to_move({"w": weight}, 0, optimizer) == (["w"] if moves else [])


@pytest.mark.parametrize(("rate", "moves"), [(1e-6, False), (1e-3, True)])
def test_moments_of_larger_gradients_leave_less_than_a_digit(rate, moves):
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([weight], lr=rate, betas=(0.9, 0.999), weight_decay=0.01)
    for step in range(200):
        weight.grad = torch.full((4,), 1.0 if step < 100 else 1e-3)
        if step == 199:
            break
        optimizer.step()
    due, before = weights_due_to_move({"w": weight}, 0, optimizer), weight.detach().clone()
    optimizer.step()
    assert due == (["w"] if moves else [])
    assert moves is bool((weight != before).any())


def test_a_weight_that_the_optimizer_does_not_hold_must_move():
    weight, other = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.full((4,), 1e-3)
    assert weights_due_to_move({"w": weight}, 0, torch.optim.AdamW([other], lr=1e-3)) == ["w"]


def test_of_a_large_model_only_the_weights_of_the_slice_are_looked_at(monkeypatch):
    """A step computes AdamW's change of eight million entries, not of the whole model."""
    parameters = {f"w{i}": torch.nn.Parameter(torch.ones(4)) for i in range(5)}
    for weight in parameters.values():
        weight.grad = torch.ones(4)
    optimizer, looked_at = torch.optim.AdamW(parameters.values(), lr=1e-3), []
    real = weight_digests._change
    monkeypatch.setattr(weight_digests, "_change", lambda *of: looked_at.append(of[0]) or real(*of))
    monkeypatch.setattr(weight_digests._bounds, "__defaults__", (6,))
    found = [weights_due_to_move(parameters, step, optimizer) for step in range(4)]
    assert found == [["w0", "w1"], ["w1", "w2"], ["w3", "w4"], ["w4"]]
    assert len(looked_at) == 7
