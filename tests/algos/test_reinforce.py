"""REINFORCE and RLOO: advantages, terms, and recipes that are refused."""

import dataclasses

import polgrad
import pytest
import torch
from pydantic import ValidationError
from samples import demo, episode, sample, weighted_terms, written_by

from truing.algos import ALGORITHMS, StepConfig
from truing.config import KlConfig, ReinforceConfig, RlooConfig
from truing.models.forward.collate import collate
from truing.types.batch import Scores
from truing.types.sampling_params import SamplingParams
from truing.types.token import Origin

REINFORCE, RLOO = ALGORITHMS["reinforce"], ALGORITHMS["rloo"]
RATES = {"steps": 1, "learning_rate": 1e-3}


def reinforce(kl=None, **changes):
    return StepConfig(ReinforceConfig(**RATES | changes), KlConfig(**kl or {}))


def rloo(kl=None, **changes):
    return StepConfig(RlooConfig(**RATES | changes), KlConfig(**kl or {}))


def trained(rows, stream="advantage"):
    return [[round(x, 5) for x in getattr(row, stream)[row.policy_mask].tolist()] for row in rows]


def test_returns_are_discounted_per_choice_and_compared_with_the_others():
    rows = [sample([1], [5] * n, name=f"r{n}", reward=reward) for n, reward in ((1, 1.0), (3, 4.0))]
    credited = REINFORCE.compute_advantages(rows, reinforce(gamma=0.5))
    assert trained(credited, "returns") == [[1.0], [1.0, 2.0, 4.0]]
    # the baseline of one is the other's reward: 4 and 1
    assert trained(credited) == [[-3.0], [0.0, 1.0, 3.0]]
    assert trained(REINFORCE.compute_advantages(rows, reinforce(gamma=0.5, baseline="none"))) == [
        [1.0],
        [1.0, 2.0, 4.0],
    ]
    assert all(row.advantage[~row.policy_mask].isnan().all() for row in credited)


@pytest.mark.parametrize("cut", [(), (1,)])
def test_the_reward_of_a_turn_counts_only_for_tokens_before_it(cut):
    rows = episode("a", 2.0, (0.5, 0.0, 0.25), cut=cut)
    credited = REINFORCE.compute_advantages(rows, reinforce(baseline="none"))
    assert [x for of_row in trained(credited) for x in of_row] == [2.0, 1.5, 1.5]


def test_whitening_is_over_all_tokens_of_the_step():
    rows = [sample([1], [5], name="a", reward=1.0), sample([1], [5, 6], name="b", reward=4.0)]
    credited = REINFORCE.compute_advantages(rows, reinforce(baseline="none", whiten=True))
    # 1, 4, 4: mean 3, deviation √3
    deviation = 3**0.5 + 1e-4
    expected = [[round(-2 / deviation, 5)], [round(1 / deviation, 5)] * 2]
    assert trained(credited) == expected


def test_a_single_rollout_has_no_others_and_no_advantage():
    """All others of its step failed: there is nothing to compare with."""
    assert trained(REINFORCE.compute_advantages([sample([1], [5, 6], reward=1.0)], reinforce())) == [
        [0.0, 0.0]
    ]
    with pytest.raises(ValidationError, match="there is one"):
        ReinforceConfig(**RATES, prompts_per_step=1, group_size=1)


def test_a_rollout_without_sampled_tokens_counts_with_its_reward():
    nothing = sample([1], [5], name="b", reward=1.0)
    nothing = written_by(nothing, torch.where(nothing.policy_mask, Origin.FORCED, nothing.origin))
    rows = [sample([1], [5], name=name, reward=reward) for name, reward in (("a", 0.0), ("c", 1.0))]
    assert trained(REINFORCE.compute_advantages([rows[0], nothing, rows[1]], reinforce())) == [
        [-1.0],
        [],
        [0.5],
    ]


def test_rounding_is_not_whitened_into_a_signal():
    rows = [sample([1], [5], name=f"r{i}", reward=1e-8 * i) for i in range(4)]
    credited = REINFORCE.compute_advantages(rows, reinforce(baseline="none", whiten=True))
    assert max(abs(x) for of_row in trained(credited) for x in of_row) < 1e-3
    alone = REINFORCE.compute_advantages(rows[3:], reinforce(baseline="none", whiten=True))
    assert alone[0].advantage[-1].item() == pytest.approx(3e-8)


def test_leave_one_out_is_polgrads():
    rewards = [1.0, 0.0, 0.5, 3.0, 2.0, 7.0]
    rows = [
        sample([1], [5], name=f"r{i}", group=f"g{i // 3}", reward=reward) for i, reward in enumerate(rewards)
    ]
    results = [row.advantage[-1].item() for row in RLOO.compute_advantages(rows, rloo())]
    groups = torch.arange(6) // 3
    theirs = polgrad.rloo_advantages(torch.tensor(rewards, dtype=torch.float64), groups)
    assert results == pytest.approx(theirs.tolist())


def test_the_cost_of_kl_is_taken_off_before_the_baseline():
    rows = [sample([1], [5, 6], name=f"r{i}", reward=1.0) for i in range(2)]
    refs = [torch.tensor([torch.nan, -1.5, -1.5]), torch.tensor([torch.nan, -1.0, -1.0])]
    rows = [dataclasses.replace(row, ref_logprob=ref) for row, ref in zip(rows, refs, strict=True)]
    in_reward = {"coef": 0.5, "where": "reward", "estimator": "k1"}
    # the first pays 2 × 0.5 × 0.5 = 0.5, the second nothing
    assert trained(RLOO.compute_advantages(rows, rloo(in_reward))) == [[-0.5] * 2, [0.5] * 2]
    result = trained(REINFORCE.compute_advantages(rows, reinforce(in_reward, baseline="none")))
    assert result == [[0.5, 0.75], [1.0, 1.0]]
    assert RLOO.needs_reference(rloo(in_reward))
    assert [term.name for term in RLOO.terms(rloo(in_reward))] == ["policy"]
    assert [term.name for term in RLOO.terms(rloo({"coef": 0.5}))] == ["policy", "kl"]


def test_the_loss_is_the_score_weighted_by_the_advantage():
    """−Σ A log π over two answers of up to ten tokens each, for any old log-probabilities."""
    sampling_params = SamplingParams(max_new_tokens=10)
    rows = [
        sample([1], [5] * n, name=f"r{n}", reward=reward, sampling_params=sampling_params)
        for n, reward in ((1, 1.0), (3, 0.0))
    ]
    credited = RLOO.compute_advantages(rows, rloo())
    logprob = torch.full(collate(rows).token_ids.shape, -0.3, requires_grad=True)
    parts = weighted_terms(RLOO, rloo(), credited, Scores(logprob, logprob, logprob))
    parts["policy"].backward()
    assert parts["policy"].item() == pytest.approx((0.3 * 1 - 0.3 * 3) / 20)
    assert torch.allclose(logprob.grad, torch.tensor([[0, -1, 0, 0], [0, 1, 1, 1]]) / 20)


def test_policy_terms_do_not_count_demonstrations():
    rows = [
        *RLOO.compute_advantages([sample([1], [5], name=f"r{i}", reward=float(i)) for i in range(2)], rloo())
    ]
    (policy,) = RLOO.terms(rloo(objective="grpo"))
    assert policy.denominator([*rows, demo([1], [5], "d")]) == 2
    assert policy.denominator([demo([1], [5], "d")]) == 1
    assert not policy.has_gradient(demo([1], [5], "d"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inner_epochs": 2}, "allows one optimizer step per step"),
        ({"minibatches": 2}, "allows one optimizer step per step"),
        ({"clip_high": 0.3}, "no clip range"),
        ({"objective": "cispo", "clip_low": 0.3}, "no clip range"),
    ],
)
def test_a_recipe_may_not_ask_for_what_has_no_meaning(changes, message):
    for table in (RlooConfig, ReinforceConfig):
        with pytest.raises(ValidationError, match=message):
            table(**RATES | changes)


def test_k1_in_the_loss_is_refused():
    with pytest.raises(ValidationError, match="mean gradient 0"):
        KlConfig(coef=0.1, estimator="k1")
