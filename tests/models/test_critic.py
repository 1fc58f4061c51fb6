"""The critic: values of the states before tokens, and whose weights they train."""

import dataclasses

import pytest
import torch
from samples import sample

from truing.models.critic import Critic, state_values
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.models.lora import add_lora, trainable_parameters


def shaken(critic):
    generator = torch.Generator().manual_seed(0)
    for parameter in critic.head.parameters():
        parameter.data.normal_(generator=generator)
    return critic


def rows():
    return [
        sample([5, 6, 7], [8, 9, 10], name="a"),
        dataclasses.replace(sample([5, 6, 7], [8, 11], name="b"), truncated=True),
        sample([20], [8, 9, 10, 12], name="c"),
    ]


@torch.no_grad()
def plain_values(model, critic, row):
    """V before each token, and after the last: by the model's own forward."""
    hidden = model.model(row.token_ids[None]).last_hidden_state[0]
    return torch.cat([torch.full((1,), torch.nan), critic.head(hidden)[:, 0]])


def test_a_fresh_critic_expects_nothing(tiny):
    critic = Critic(tiny.model, separate=False)
    for values in state_values(critic, tiny.model, rows()):
        assert values.nan_to_num().eq(0).all()


@pytest.mark.parametrize("separate", [False, True])
def test_values_are_of_the_states_before_tokens_and_after_a_cut_end(tiny, separate):
    critic = shaken(Critic(tiny.model, separate=separate))
    for row, values in zip(rows(), state_values(critic, tiny.model, rows()), strict=True):
        expected = plain_values(tiny.model, critic, row)
        wanted = torch.cat([row.value_mask, torch.tensor([row.truncated])])
        assert len(values) == len(row) + 1
        assert values[~wanted].isnan().all()
        assert torch.allclose(values[wanted], expected[wanted], atol=1e-5)


@pytest.mark.parametrize("separate", [False, True])
def test_scores_hold_the_same_values_with_a_gradient(tiny, separate):
    critic = shaken(Critic(tiny.model, separate=separate))
    batch = collate(rows())
    scores = score(tiny.model, batch, batch.policy_mask, critic=critic)
    for b, (row, values) in enumerate(zip(rows(), state_values(critic, tiny.model, rows()), strict=True)):
        result = scores.value[b, : len(row)]
        assert torch.allclose(result[row.value_mask], values[:-1][row.value_mask], atol=1e-6)
        assert (result[~row.value_mask] == 0).all()
    scores.value.square().sum().backward()
    moved = {name for name, p in critic.trainable().items() if p.grad is not None and p.grad.any()}
    assert {"critic.head.weight", "critic.head.bias"} <= moved
    assert any("trunk" in name for name in moved) == separate
    touched = any(p.grad is not None and p.grad.any() for p in tiny.model.parameters())
    assert touched == (not separate)


def test_without_a_critic_there_are_no_values(tiny):
    batch = collate(rows())
    assert score(tiny.model, batch, batch.policy_mask).value is None


@pytest.mark.parametrize("lora", [False, True])
def test_a_trunk_of_its_own_shares_what_is_frozen_and_nothing_that_is_trained(tiny, lora):
    policy = tiny.model
    if lora:
        policy = add_lora(tiny.model, rank=2, alpha=4, dropout=0.0, targets="all-linear", seed=0)
    critic = Critic(policy, separate=True)
    trained = trainable_parameters(policy)
    own = {name: p for name, p in critic.trainable().items() if "head" not in name.split(".")[1]}
    assert len(own) == len(trained)
    assert not {p.data_ptr() for p in own.values()} & {p.data_ptr() for p in trained.values()}
    frozen = [p for p in policy.parameters() if not p.requires_grad]
    held = {id(p) for p in critic.parameters()}
    assert all(id(p) in held for p in frozen)
    assert bool(frozen) == lora


def test_a_trunk_of_its_own_has_no_dropout(tiny):
    policy = add_lora(tiny.model, rank=2, alpha=4, dropout=0.5, targets="all-linear", seed=0)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.1)
    critic = shaken(Critic(policy.train(), separate=True))
    one, two = (state_values(critic, policy, rows()) for _ in range(2))
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(one, two, strict=True))


def test_a_head_alone_trains_two_tensors(tiny):
    critic = Critic(tiny.model, separate=False)
    assert list(critic.trainable()) == ["critic.head.weight", "critic.head.bias"]
