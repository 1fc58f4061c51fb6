"""SFT and rejection sampling: which tokens are trained, by which term."""

import math

import pytest
import torch
from samples import demo, weighted_terms

from truing.algos import ALGORITHMS
from truing.algos.flatten import flatten
from truing.config import RftConfig, Stage
from truing.types.batch import Scores
from truing.types.rollout import Rollout, Task, Turn
from truing.types.sampling_params import RAW
from truing.types.status import FinishReason, Status
from truing.types.token import Origin

SFT, RFT = ALGORITHMS["sft"], ALGORITHMS["rft"]
TASK = Task("t", "test", ({"role": "user", "content": "?"},))


def rollout(name, reward, drawn=(7, 8)):
    turn = Turn(
        context_ids=torch.tensor([1, 2, 3]),
        context_origin=torch.zeros(3, dtype=torch.uint8),
        token_ids=torch.tensor(drawn),
        origin=torch.full((len(drawn),), Origin.SAMPLED, dtype=torch.uint8),
        structure=torch.zeros(len(drawn), dtype=torch.bool),
        sampler_logprob=torch.full((len(drawn),), -1.0),
        finish_reason=FinishReason.STOP,
        sampler_version=4,
        weight_digest="abc",
    )
    return Rollout(name, "g", TASK, (turn,), "", Status.DONE, RAW, reward)


def test_every_stage_of_a_recipe_has_its_algorithm():
    assert list(ALGORITHMS) == list(Stage.__args__)


def test_the_loss_is_the_mean_over_demonstrated_tokens_whatever_their_samples():
    samples = [demo([1, 2], [5], "a"), demo([1], [5, 6, 7], "b")]
    logprob = torch.tensor([[-9.0, -9.0, -1.0, -9.0], [-9.0, -2.0, -3.0, -4.0]], requires_grad=True)
    parts = weighted_terms(SFT, None, samples, Scores(logprob, logprob, logprob))
    parts["supervised"].backward()
    assert [term.denominator(samples) for term in SFT.terms(None)] == [4]
    assert parts["supervised"].item() == pytest.approx((1 + 2 + 3 + 4) / 4)
    assert logprob.grad.tolist() == [[0, 0, -0.25, 0], [0, -0.25, -0.25, -0.25]]
    assert SFT.compute_advantages(samples, None) == samples
    assert not SFT.needs_reference(None)
    assert SFT.objective(None) is None


def test_rejection_sampling_keeps_answers_with_enough_reward_as_demonstrations():
    cfg = RftConfig(steps=1, learning_rate=1e-3, min_reward=0.5)
    good, edge, bad = RFT.to_samples(
        [rollout("a", 1.0), rollout("b", 0.5), rollout("c", 0.49)], cfg, "sampled"
    )
    for row in (good, edge):
        assert row.token_ids.tolist() == [1, 2, 3, 7, 8]
        assert row.supervised_mask.tolist() == [False, False, False, True, True]
        assert row.origin[row.supervised_mask].unique().tolist() == [Origin.DEMO]
        assert row.sampler_logprob.isnan().all()
    assert not (bad.supervised_mask | bad.policy_mask | bad.kl_mask | bad.value_mask).any()
    assert bad.origin.tolist()[3:] == [Origin.SAMPLED] * 2
    assert bad.sampler_logprob.tolist()[3:] == [-1.0, -1.0]
    assert [row.reward for row in (good, edge, bad)] == [1.0, 0.5, 0.49]
    assert {row.group_id for row in (good, edge, bad)} == {"g"}


def test_a_reward_that_was_not_recorded_is_not_good():
    cfg = RftConfig(steps=1, learning_rate=1e-3, min_reward=-1e9)
    (row,) = RFT.to_samples([rollout("a", math.nan)], cfg, "sampled")
    assert not row.supervised_mask.any()


def test_grpo_trains_on_every_rollout():
    rollouts = [rollout("a", 1.0), rollout("b", 0.0, drawn=(9,))]
    samples = ALGORITHMS["grpo"].to_samples(rollouts, None, "sampled")
    assert [row.token_ids.tolist() for row in samples] == [flatten(r)[0].token_ids.tolist() for r in rollouts]
    assert all(row.policy_mask.any() for row in samples)
