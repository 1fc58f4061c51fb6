"""AdamW against its equations, the schedules, and the guard that names what is not finite."""

import math

import pytest
import torch
from torch import nn

from truing.config import OptimizerConfig
from truing.errors import NonFiniteError
from truing.learner.lr_schedule import learning_rate
from truing.learner.optimizer import clip_and_step, make_optimizer

START = [1.0, -2.0, 3.0]


def parameters():
    return {"a": nn.Parameter(torch.tensor(START[:2])), "b": nn.Parameter(torch.tensor(START[2:]))}


def with_gradient(*gradient):
    weights = parameters()
    weights["a"].grad = torch.tensor(gradient[:2])
    weights["b"].grad = torch.tensor(gradient[2:])
    return weights


def values(made):
    return torch.cat([parameter.detach() for parameter in made.values()]).tolist()


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1 / 3, 2 / 3, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [1 / 3, 2 / 3, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [1 / 3, 2 / 3, 1.0, 1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]),
    ],
)
def test_a_schedule_by_hand(schedule, expected):
    """Three steps of warm-up, four after it."""
    cfg = OptimizerConfig(schedule=schedule, warmup_steps=3)
    assert [learning_rate(step, 7, 2.0, cfg) / 2 for step in range(7)] == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 1, 4, 9])
def test_every_step_of_a_schedule_moves_the_weights(schedule, warmup):
    cfg = OptimizerConfig(schedule=schedule, warmup_steps=warmup)
    assert all(0 < learning_rate(step, 4, 1.0, cfg) <= 1.0 for step in range(4))


def test_two_optimizer_steps_are_adamw_by_hand():
    cfg = OptimizerConfig(beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.1, max_grad_norm=1e9)
    weights = parameters()
    optimizer = make_optimizer(cfg, weights)
    for group in optimizer.param_groups:
        group["lr"] = 0.05
    w, m, v = list(START), [0.0] * 3, [0.0] * 3
    for t, gradient in enumerate(([0.5, -1.0, 2.0], [0.25, 4.0, -1.0]), start=1):
        weights["a"].grad, weights["b"].grad = torch.tensor(gradient[:2]), torch.tensor(gradient[2:])
        clip_and_step(optimizer, cfg.max_grad_norm, "here", weights)
        for i, g in enumerate(gradient):
            m[i] = 0.8 * m[i] + 0.2 * g
            v[i] = 0.9 * v[i] + 0.1 * g * g
            w[i] -= 0.05 * 0.1 * w[i]
            w[i] -= 0.05 * (m[i] / (1 - 0.8**t)) / (math.sqrt(v[i] / (1 - 0.9**t)) + 1e-3)
        assert values(weights) == pytest.approx(w, abs=1e-6)


@pytest.mark.parametrize(("limit", "scale"), [(6.5, 0.5), (13.0, 1.0), (100.0, 1.0)])
def test_the_gradient_is_scaled_to_its_limit_and_its_norm_returned(limit, scale):
    made = with_gradient(3.0, 4.0, 12.0)  # norm 13
    seen = []
    optimizer = torch.optim.SGD(made.values(), lr=1.0)
    optimizer.register_step_pre_hook(lambda *_: seen.extend(p.grad.clone() for p in made.values()))
    assert clip_and_step(optimizer, limit, "here", made) == pytest.approx([13.0])
    assert torch.cat(seen).tolist() == pytest.approx([3.0 * scale, 4.0 * scale, 12.0 * scale], rel=1e-5)
    assert all(parameter.grad is None for parameter in made.values())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_is_named_and_changes_nothing(value):
    made = with_gradient(1.0, 1.0, value)
    optimizer = make_optimizer(OptimizerConfig(), made)
    with pytest.raises(NonFiniteError, match=r"gradient of b is not finite at 0/grpo/7") as error:
        clip_and_step(optimizer, 1.0, "0/grpo/7", made)
    assert error.value.got == "1 of 1 entries"
    assert values(made) == START
    assert not optimizer.state


def test_parameters_without_a_gradient_are_left_alone():
    weights = parameters()
    weights["a"].grad = torch.ones(2)
    optimizer = make_optimizer(OptimizerConfig(weight_decay=0.5), weights)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    clip_and_step(optimizer, 1e9, "here", weights)
    assert values(weights)[2] == START[2]
    assert values(weights)[0] != START[0]


def test_each_part_is_clipped_by_itself():
    """A norm of 13 is halved, one of 2 stays: a critic's large gradient does not shrink the policy's."""
    large, small = with_gradient(3.0, 4.0, 12.0), with_gradient(0.0, 0.0, 2.0)
    seen = []
    optimizer = torch.optim.SGD([*large.values(), *small.values()], lr=1.0)
    parts = (large, small)
    optimizer.register_step_pre_hook(
        lambda *_: seen.extend(torch.cat([p.grad for p in part.values()]).norm().item() for part in parts)
    )
    assert clip_and_step(optimizer, 6.5, "here", *parts) == pytest.approx([13.0, 2.0])
    assert seen == pytest.approx([6.5, 2.0], rel=1e-5)


def test_parts_have_rates_of_their_own():
    optimizer = make_optimizer(OptimizerConfig(), parameters(), parameters())
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2]
