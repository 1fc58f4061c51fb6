"""Turns that begin with the forced prefix, beside those that their random numbers choose."""

from types import SimpleNamespace

import pytest
import torch

from truing.config import EpisodeConfig
from truing.measurements.forced_prefixes import prefix_fact
from truing.types.token import Origin
from truing.utils.rng import uniforms

EPISODE = EpisodeConfig(forced_prefix="x", force_rate=0.5, force_steps=10)


def rollout(name, forced, origin=Origin.SAMPLED):
    """Return a rollout of one turn after a prompt of three ids and, if forced, one more."""
    context = torch.tensor([Origin.PROMPT] * 3 + [Origin.FORCED] * forced, dtype=torch.uint8)
    turn = SimpleNamespace(
        call=0,
        context_ids=torch.arange(len(context)),
        context_origin=context,
        token_ids=torch.arange(2),
        origin=torch.full((2,), origin, dtype=torch.uint8),
        restart_reason="",
    )
    return SimpleNamespace(rollout_id=name, turns=(turn,))


def rollouts(rate, step, **changes):
    """Return 32 rollouts, of which those are forced that a rate gives."""
    names = [f"0/grpo/{step}/{task}/{k}" for task in range(4) for k in range(8)]
    return {name: rollout(name, float(uniforms(1, *name.split("/"), "force")) < rate) for name in names}


@pytest.mark.parametrize(("step", "rate"), [(0, 0.5), (4, 0.3), (12, 0.0)])
def test_the_declared_share_has_no_difference(step, rate):
    fact = prefix_fact(rollouts(rate, step), EPISODE, step, longest=100)
    assert (fact["turns"], fact["other"], fact["rate"]) == (32, 0, pytest.approx(rate))
    assert (fact["forced"] > 0) == (rate > 0)


def test_a_share_that_does_not_fall_is_told():
    fact = prefix_fact(rollouts(0.5, 8), EPISODE, 8, longest=100)
    assert fact["other"] > 4
    assert fact["rollout"].startswith("0/grpo/8/")


def test_a_prefix_that_does_not_fit_may_be_left_out():
    missing = rollouts(0.0, 0)
    assert prefix_fact(missing, EPISODE, 0, longest=3)["other"] == 0
    assert prefix_fact(missing, EPISODE, 0, longest=100)["other"] > 4


def test_demonstrated_turns_are_not_compared():
    assert prefix_fact({"a": rollout("a", True, Origin.DEMO)}, EPISODE, 0, longest=100)["turns"] == 0
