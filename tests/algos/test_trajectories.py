"""Rollouts as trajectories: the reward of each token, and streams split back into samples."""

import dataclasses
import math

import pytest
import torch
from samples import episode, sample, written_by

from truing.algos import StepConfig
from truing.algos.trajectories import Trajectories, kl_cost, shaped_reward, token_rewards
from truing.config import GatesConfig, KlConfig
from truing.types.sampling_params import SamplingParams
from truing.types.token import Excluded, Origin

OFF = StepConfig(None)
IN_REWARD = KlConfig(coef=0.5, where="reward", estimator="k1")


def with_ref(row, ref):
    return dataclasses.replace(row, ref_logprob=torch.where(row.kl_mask, ref, torch.nan))


def test_the_reward_is_at_the_last_sampled_token():
    row = sample([1, 2], [5, 6, 7], reward=2.0)
    assert token_rewards([row], OFF).tolist() == [0, 0, 0, 0, 2.0]


def test_tokens_after_the_last_sampled_one_have_no_reward():
    """The environment's last message is no action: the reward is at the SAMPLED token before it."""
    row = sample([1, 2], [5, 6, 7], reward=2.0)
    origin = row.origin.clone()
    origin[-1] = Origin.TOOL
    assert token_rewards([written_by(row, origin)], OFF).tolist() == [0, 0, 0, 2.0, 0]


@pytest.mark.parametrize("cut", [(), (1,), (2,)])
def test_turns_have_their_rewards_and_the_end_has_the_rest(cut):
    parts = episode("a", 2.0, (0.5, 0.0, 0.25), cut=cut)
    chosen = torch.cat([part.value_mask for part in parts])
    assert token_rewards(parts, OFF)[chosen].tolist() == [0.5, 0.0, 0.25 + 1.25]
    assert token_rewards(parts, OFF).sum() == 2.0


def test_a_turn_without_a_choice_gives_its_share_to_the_choice_before_it():
    (row,) = episode("a", 2.0, (0.5, 1.0))
    origin = row.origin.clone()
    origin[-1] = Origin.FORCED
    row = written_by(row, origin)
    assert token_rewards([row], OFF)[row.value_mask].tolist() == [0.5 + 1.0 + 0.5]


def test_without_sampled_tokens_all_rewards_are_0():
    row = sample([1, 2], [5], reward=2.0)
    forced = written_by(row, torch.where(row.policy_mask, Origin.FORCED, row.origin))
    assert token_rewards([forced], OFF).tolist() == [0, 0, 0]


def test_the_cost_of_kl_is_paid_token_by_token():
    """Sampled with log-probability −1, reference −1.5: k1 = 0.5, times 0.5."""
    row = with_ref(sample([1, 2], [5, 6], reward=2.0), -1.5)
    assert kl_cost(row, IN_REWARD).tolist() == [0, 0, 0.25, 0.25]
    assert token_rewards([row], StepConfig(None, IN_REWARD)).tolist() == [0, 0, -0.25, 2.0 - 0.25]
    k3 = KlConfig(coef=0.5, where="reward", estimator="k3")
    assert kl_cost(row, k3)[2].item() == pytest.approx(0.5 * (math.exp(-0.5) - 1 + 0.5))
    assert not kl_cost(row, KlConfig(coef=0.5)).any()  # in the loss it costs no reward
    assert not kl_cost(row, KlConfig(coef=0.0, where="reward")).any()


def test_a_reference_that_is_missing_is_not_free():
    row = sample([1, 2], [5, 6], reward=2.0)
    assert kl_cost(row, IN_REWARD)[2:].isnan().all()


def test_masked_tokens_stay_in_the_trajectory():
    row = sample([1], [5, 6, 7], reward=1.0)
    excluded = row.excluded.clone()
    excluded[2] = Excluded.STRUCTURE
    row = dataclasses.replace(row, excluded=excluded, policy_mask=excluded == Excluded.NO)
    trajectories = Trajectories.from_samples([row], OFF)
    assert trajectories.mask_RT.tolist() == [[False, True, True, True]]
    assert trajectories.trained_RT.tolist() == [[False, True, False, True]]


@pytest.mark.parametrize("cut", [(), (1,)])
def test_streams_come_back_to_their_samples(cut):
    rows = [*episode("a", 2.0, (0.5, 0.0, 0.25), cut=cut), sample([1], [5], name="b", reward=0.0)]
    trajectories = Trajectories.from_samples(rows, OFF)
    index_RT = torch.arange(trajectories.mask_RT.numel()).view(trajectories.mask_RT.shape).double()
    mixed = rows[::-1]
    written = trajectories.with_streams(mixed, advantage=index_RT)
    assert [row.sample_id for row in written] == [row.sample_id for row in mixed]
    start = 0
    for row in rows[:-1]:
        (found,) = (each for each in written if each.sample_id == row.sample_id)
        assert found.advantage.tolist() == list(range(start, start + len(row)))
        start += len(row)
    assert written[0].advantage.tolist() == [index_RT.shape[1], index_RT.shape[1] + 1]
    assert all(row.advantage.isnan().all() for row in rows)


def test_truncated_and_long_answers_have_a_lower_reward_where_declared():
    params = SamplingParams(max_new_tokens=10)
    done = sample([1], [5] * 8, reward=1.0, sampling_params=params)
    cut = dataclasses.replace(sample([1], [5] * 10, reward=1.0, sampling_params=params), truncated=True)
    for gates, expected in [
        ({}, [1.0, 1.0]),
        ({"truncated": "penalize", "truncated_penalty": 0.4}, [1.0, 0.6]),
        ({"overlong_tokens": 4, "overlong_penalty": 0.5}, [0.75, 0.5]),
        ({"truncated": "mask"}, [1.0, 1.0]),
    ]:
        results = [shaped_reward([row], GatesConfig(**gates)) for row in (done, cut)]
        assert results == pytest.approx(expected)
        config = StepConfig(None, gates=GatesConfig(**gates))
        assert [token_rewards([row], config).sum().item() for row in (done, cut)] == pytest.approx(expected)
    assert cut.reward == 1.0  # the recorded reward is the grader's


def test_the_longest_turn_counts_and_a_history_in_parts_is_cut_at_its_end():
    parts = episode("a", 2.0, (0.5, 0.0, 0.25), cut=(1,))
    ended = [*parts[:-1], dataclasses.replace(parts[-1], truncated=True)]
    gates = GatesConfig(truncated="penalize")
    assert shaped_reward(ended, gates) == 1.0
    assert shaped_reward(parts, gates) == 2.0
