"""PPO's step: the critic learns what can be known, and the policy from what it could not."""

import dataclasses

import pytest
import torch
from samples import sample
from test_step import gradient_of, learner, on_policy

from truing.config import PpoConfig
from truing.learner.scoring import with_values
from truing.learner.step import train_step
from truing.ops.returns import explained_variance

pytestmark = pytest.mark.integration

PPO = PpoConfig(steps=1, learning_rate=1e-3, value_learning_rate=1e-2, lam=1.0, whiten=False)
ROWS = [
    sample([5, 6, 7], [8, 9, 10], name="a", group="x", reward=1.0),
    sample([5, 6], [11], name="b", group="x", reward=0.0),
    sample([20, 21], [8, 9], name="c", group="y", reward=0.5),
]


def values_of(made, rows):
    return torch.cat([row.value[row.value_mask] for row in with_values(rows, made)])


@pytest.mark.parametrize("critic", ["head", "separate"])
def test_the_critic_fits_what_each_state_earns(tiny, critic):
    """Returns that the prompt decides are known in full after a while; the policy stands still meanwhile."""
    rate = {"head": 1e-2, "separate": 1e-3}[critic]
    cfg = PPO.model_copy(update={"critic": critic, "learning_rate": 1e-12, "value_learning_rate": rate})
    rows = on_policy(tiny.model, ROWS)
    stage_learner = learner(tiny.model, cfg, algorithm="ppo")
    for step in range(150):
        (done,) = train_step(stage_learner, rows, (0, "test", step))
    values = values_of(stage_learner, rows)
    returns = torch.cat([row.returns[row.value_mask] for row in done.samples])
    everywhere = torch.ones(1, len(values), dtype=torch.bool)
    assert explained_variance(values[None], returns[None], everywhere) > 0.99


def test_the_critic_fits_a_constant(tiny):
    """Constant returns have no variance to explain: the values themselves come near."""
    cfg = PPO.model_copy(update={"learning_rate": 1e-12})
    rows = on_policy(tiny.model, [dataclasses.replace(row, reward=2.0) for row in ROWS])
    stage_learner = learner(tiny.model, cfg, algorithm="ppo")
    for step in range(150):
        train_step(stage_learner, rows, (0, "test", step))
    assert (values_of(stage_learner, rows) - 2.0).abs().max() < 0.05


def test_a_state_knows_nothing_of_what_comes_after_it(tiny):
    stage_learner = learner(tiny.model, PPO, algorithm="ppo")
    stage_learner.critic.head.weight.data.normal_()
    one, other = (
        with_values([sample([5, 6, 7], [8, last], name="a")], stage_learner)[0].value for last in (9, 10)
    )
    assert torch.equal(one[3:], other[3:])


def test_all_weights_of_the_policy_have_the_gradient_of_reinforce_at_ratio_one(tiny):
    """With V = 0, λ = 1 and no whitening an advantage is the reward: −Σ R ∇ log π / tokens."""
    rows = on_policy(tiny.model, ROWS)
    expected = 0
    for row in rows:
        logits = tiny.model(row.token_ids[None]).logits[0, :-1]
        logprob = logits.log_softmax(-1).gather(1, row.token_ids[1:, None])[:, 0][row.prompt_length - 1 :]
        expected = expected - row.reward * logprob.sum() / 6
    expected.backward()
    by_hand = {name: p.grad.clone() for name, p in tiny.model.named_parameters()}
    tiny.model.zero_grad()
    # the value head is 0, so the value term moves no trunk yet
    for name, value in gradient_of(tiny.model, PPO, rows, algorithm="ppo").items():
        assert torch.allclose(value, by_hand[name], rtol=1e-3, atol=1e-6), name
