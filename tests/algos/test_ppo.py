"""PPO: generalized advantages along SAMPLED tokens, by hand and against other implementations."""

import dataclasses
import math

import polgrad
import pytest
import torch
from samples import episode, sample, weighted_terms, written_by

from truing.algos import ALGORITHMS, StepConfig
from truing.config import KlConfig, PpoConfig
from truing.errors import InvalidValueError
from truing.models.forward.collate import collate
from truing.types.batch import Scores
from truing.types.token import Excluded, Origin

PPO = ALGORITHMS["ppo"]


def step_config(kl=None, **changes):
    return StepConfig(
        PpoConfig(steps=1, learning_rate=1e-3, **{"whiten": False} | changes), KlConfig(**kl or {})
    )


def valued(row, values, bootstrap=math.nan):
    stream = torch.full((len(row),), torch.nan)
    stream[row.value_mask] = torch.tensor(values)
    return dataclasses.replace(
        row, value=stream, bootstrap_value=bootstrap, truncated=not math.isnan(bootstrap)
    )


def at(row, stream):
    return getattr(row, stream)[row.value_mask].tolist()


def test_advantages_and_returns_by_hand():
    # γ 0.5, λ 0.5, reward 1 at the end; V = 0.2, 0.4
    # δ₂ = 1 − 0.4 = 0.6; δ₁ = 0.5 · 0.4 − 0.2 = 0; A₁ = 0.25 · 0.6 = 0.15
    (row,) = PPO.compute_advantages(
        [valued(sample([1], [5, 6], reward=1.0), [0.2, 0.4])], step_config(gamma=0.5, lam=0.5)
    )
    assert at(row, "advantage") == pytest.approx([0.15, 0.6])
    assert at(row, "returns") == pytest.approx([0.35, 1.0])
    assert row.advantage[0].isnan()


def test_a_cut_end_goes_on_with_what_the_critic_expects_and_a_real_end_does_not():
    plain = sample([1], [5, 6], reward=1.0)
    rows = [valued(plain, [0.2, 0.4]), valued(dataclasses.replace(plain, rollout_id="b"), [0.2, 0.4], 0.8)]
    ended, cut = (PPO.compute_advantages([row], step_config(gamma=0.5, lam=1.0))[0] for row in rows)
    assert at(ended, "returns") == pytest.approx([0.5, 1.0])
    assert at(cut, "returns") == pytest.approx([0.5 * 1.4, 1.0 + 0.5 * 0.8])
    (judged,) = PPO.compute_advantages(rows[1:], step_config(gamma=0.5, lam=1.0, truncation="end"))
    assert at(judged, "returns") == at(ended, "returns")


def test_a_cut_end_without_a_value_is_an_error():
    row = dataclasses.replace(valued(sample([1], [5], reward=1.0), [0.2]), truncated=True)
    with pytest.raises(InvalidValueError, match="bootstrap_B is not finite"):
        PPO.compute_advantages([row], step_config())


def test_what_others_wrote_takes_no_time():
    """A token of the environment between two SAMPLED tokens is no step of the trajectory."""
    row = sample([1], [5, 6, 7], reward=1.0)
    origin = row.origin.clone()
    origin[2] = Origin.TOOL
    gap = written_by(row, origin)
    config = step_config(gamma=0.5, lam=0.5)
    (one,) = PPO.compute_advantages([valued(gap, [0.2, 0.4])], config)
    (other,) = PPO.compute_advantages([valued(sample([1], [5, 6], reward=1.0), [0.2, 0.4])], config)
    assert at(one, "advantage") == at(other, "advantage")
    assert at(one, "returns") == at(other, "returns")


def test_masked_tokens_stay_in_the_trajectory_and_are_not_trained():
    row = sample([1], [5, 6], reward=1.0)
    excluded = row.excluded.clone()
    excluded[1] = Excluded.STRUCTURE
    masked = dataclasses.replace(row, excluded=excluded, policy_mask=excluded == Excluded.NO)
    config = step_config(gamma=0.5, lam=0.5)
    (one,), (other,) = (PPO.compute_advantages([valued(each, [0.2, 0.4])], config) for each in (masked, row))
    assert at(one, "returns") == at(other, "returns")
    assert one.advantage[2] == other.advantage[2]
    assert one.advantage[1].isnan()


@pytest.mark.parametrize("cut", [(), (1,), (2,)])
def test_a_rewritten_history_keeps_one_trajectory(cut):
    whole = episode("a", 2.0, (0.5, 0.0, 0.25))
    parts = episode("a", 2.0, (0.5, 0.0, 0.25), cut=cut)
    values = iter([0.1, 0.2, 0.3])
    parts = [valued(part, [next(values) for _ in range(int(part.value_mask.sum()))]) for part in parts]
    config = step_config(gamma=0.9, lam=0.8)
    results = [x for part in PPO.compute_advantages(parts, config) for x in at(part, "advantage")]
    (expected,) = PPO.compute_advantages([valued(whole[0], [0.1, 0.2, 0.3])], config)
    assert results == at(expected, "advantage")


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (0.5, 0.0)])
def test_advantages_are_polgrads(gamma, lam):
    generator = torch.Generator().manual_seed(0)
    rows = []
    for i, length in enumerate((4, 1, 6)):
        values = torch.rand(length, generator=generator).tolist()
        rows.append(valued(sample([1], [5] * length, name=f"r{i}", reward=float(i)), values))
    result = PPO.compute_advantages(rows, step_config(gamma=gamma, lam=lam))
    for row, credited in zip(rows, result, strict=True):
        rewards = torch.zeros(1, int(row.value_mask.sum()), dtype=torch.float64)
        rewards[0, -1] = row.reward
        value = row.value[row.value_mask][None].double()
        mask = torch.ones_like(rewards, dtype=torch.bool)
        advantage, returns = polgrad.gae(
            rewards, value, config=polgrad.GAEConfig(gamma, lam), response_mask=mask
        )
        assert at(credited, "advantage") == pytest.approx(advantage[0].tolist())
        assert at(credited, "returns") == pytest.approx(returns[0].tolist())


def test_whitening_keeps_the_outcome_of_a_trajectory():
    """Both tokens of the good answer stay above, both of the bad one below; returns are not touched."""
    rows = [
        valued(sample([1], [5, 6], name=name, reward=reward), [0.5, 0.5])
        for name, reward in (("good", 1.0), ("bad", 0.0))
    ]
    good, bad = PPO.compute_advantages(rows, step_config(whiten=True, lam=1.0))
    assert min(at(good, "advantage")) > 0 > max(at(bad, "advantage"))
    both = torch.tensor(at(good, "advantage") + at(bad, "advantage"))
    assert both.mean().abs() < 1e-6
    assert both.std() == pytest.approx(1.0, rel=1e-3)
    assert at(good, "returns") == [1.0, 1.0]


def test_the_cost_of_kl_is_paid_where_it_arises():
    row = valued(sample([1], [5, 6], reward=1.0), [0.0, 0.0])
    row = dataclasses.replace(row, ref_logprob=torch.tensor([torch.nan, -1.5, -1.0]))
    (found,) = PPO.compute_advantages(
        [row], step_config({"coef": 0.5, "where": "reward", "estimator": "k1"}, lam=1.0)
    )
    assert at(found, "returns") == pytest.approx([1.0 - 0.25, 1.0])


@pytest.mark.parametrize(("clip", "error"), [(None, 0.6**2), (0.1, 0.9**2)])
def test_the_value_term_is_half_the_squared_error(clip, error):
    """V was 0 and now is 0.4, the return is 1: clipped to 0.1, the error is seen as 0.9."""
    (row,) = PPO.compute_advantages([valued(sample([1], [5], reward=1.0), [0.0])], step_config())
    logprob = torch.zeros(1, 2)
    value = torch.full((1, 2), 0.4, requires_grad=True)
    scores = Scores(logprob, logprob, logprob, value)
    parts = weighted_terms(PPO, step_config(value_coef=0.3, value_clip=clip), [row], scores)
    assert parts["value"].item() == pytest.approx(0.3 * error / 2)
    parts["value"].backward()
    assert value.grad[0].tolist() == pytest.approx([0.0, 0.3 * (0.4 - 1) if clip is None else 0.0])
    assert collate([row]).returns[0, 1] == 1


def test_groups_without_an_advantage_still_teach_the_critic():
    (row,) = PPO.compute_advantages([valued(sample([1], [5], reward=0.5), [0.5])], step_config())
    policy, value = PPO.terms(step_config())
    assert not policy.has_gradient(row)
    assert value.has_gradient(row)
