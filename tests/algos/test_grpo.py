"""GRPO: advantages, denominator and loss of hand-made samples."""

import dataclasses
import math

import pytest
import torch
from samples import episode, sample, weighted_terms

from truing.algos import ALGORITHMS, StepConfig
from truing.config import GrpoConfig, KlConfig
from truing.errors import InvalidValueError, RewardError
from truing.models.forward.collate import collate
from truing.ops.losses import OBJECTIVES
from truing.types.batch import Scores
from truing.types.sampling_params import SamplingParams

GRPO = ALGORITHMS["grpo"]
PARAMS = SamplingParams(max_new_tokens=10)


def cfg(**changes):
    return GrpoConfig(steps=1, learning_rate=1e-3, **changes)


def step_config(kl=None, **changes):
    return StepConfig(cfg(**changes), KlConfig(**kl or {}))


def rows(*rewards, group="g", lengths=None):
    lengths = lengths or [2] * len(rewards)
    return [
        sample([1, 2], [5] * n, name=f"{group}{i}", group=group, reward=reward, sampling_params=PARAMS)
        for i, (reward, n) in enumerate(zip(rewards, lengths, strict=True))
    ]


def advantages(samples):
    """The one advantage of each sample."""
    results = []
    for row in samples:
        (value,) = set(row.advantage[row.policy_mask].tolist())
        assert row.advantage[~row.policy_mask].isnan().all()
        results.append(value)
    return results


def loss_of(samples, new, config):
    logprob = torch.full(collate(samples).token_ids.shape, new, requires_grad=True)
    return weighted_terms(GRPO, config, samples, Scores(logprob, logprob, logprob)), logprob


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        # group g: 1, 0, 0.5 (mean 0.5, std 0.5); group h: 2, 0 (mean 1, std √2); all five: std √0.7
        ("group", [0.5 / 0.5001, -0.5 / 0.5001, 0, 1 / (2**0.5 + 1e-4), -1 / (2**0.5 + 1e-4)]),
        ("batch", [x / (0.7**0.5 + 1e-4) for x in (0.5, -0.5, 0, 1, -1)]),
        ("none", [0.5, -0.5, 0, 1, -1]),
    ],
)
def test_the_baseline_is_the_mean_of_the_group(scale, expected):
    samples = rows(1.0, 0.0, 0.5) + rows(2.0, 0.0, group="h")
    assert advantages(GRPO.compute_advantages(samples, step_config(advantage_scale=scale))) == pytest.approx(
        expected, rel=1e-5
    )


def test_advantages_do_not_depend_on_the_order_of_groups():
    samples = rows(1.0, 0.0, 0.5) + rows(2.0, 0.0, group="h")
    mixed = [samples[i] for i in (3, 0, 4, 2, 1)]
    plain = advantages(GRPO.compute_advantages(samples, step_config()))
    assert advantages(GRPO.compute_advantages(mixed, step_config())) == [plain[i] for i in (3, 0, 4, 2, 1)]


def test_compute_advantages_makes_new_samples_and_leaves_the_old():
    samples = rows(1.0, 0.0)
    GRPO.compute_advantages(samples, step_config())
    assert all(row.advantage.isnan().all() for row in samples)


def test_equal_rewards_have_advantages_of_exactly_0():
    assert advantages(GRPO.compute_advantages(rows(0.1, 0.1, 0.1), step_config())) == [0.0, 0.0, 0.0]


def test_a_group_of_one_has_no_baseline():
    with pytest.raises(InvalidValueError, match="group of one"):
        GRPO.compute_advantages(rows(1.0), step_config())


def test_a_missing_reward_is_an_error():
    with pytest.raises(InvalidValueError, match="finite"):
        GRPO.compute_advantages(rows(1.0, math.nan), step_config())


@pytest.mark.parametrize(
    ("objective", "expected"),
    [("grpo", 2), ("gspo", 2), ("dapo", 4), ("bnpo", 4), ("cispo", 4), ("dr_grpo", 20)],
)
def test_the_denominator_counts_what_the_objective_averages_over(objective, expected):
    """Two sequences of 1 and 3 tokens, 10 new tokens at most."""
    (policy,) = GRPO.terms(step_config(objective=objective))
    assert policy.denominator(rows(1.0, 0.0, lengths=[1, 3])) == expected


def test_the_objective_is_the_named_one_with_the_recipes_clip():
    assert GRPO.objective(cfg(objective="dapo")) == OBJECTIVES["dapo"]
    made = GRPO.objective(cfg(objective="dapo", clip_low=0.05, clip_high=3.0))
    assert made == dataclasses.replace(OBJECTIVES["dapo"], clip_low=0.05, clip_high=3.0)


@pytest.mark.parametrize("name", GrpoConfig.model_fields["objective"].annotation.__args__)
def test_every_objective_of_the_recipe_is_in_the_table(name):
    assert GRPO.objective(cfg(objective=name)) == OBJECTIVES[name]


def test_the_policy_loss_on_policy_by_hand():
    """Ratio 1: −mean over sequences of A, and a gradient of −A/(B·n) on each trained token."""
    config = step_config(advantage_scale="none")
    samples = GRPO.compute_advantages(rows(1.0, 0.0, lengths=[1, 2]), config)
    parts, logprob = loss_of(samples, -1.0, config)
    assert parts.keys() == {"policy"}
    parts["policy"].backward()
    assert parts["policy"].item() == pytest.approx(-(0.5 - 0.5) / 2)
    assert torch.allclose(logprob.grad, torch.tensor([[0, 0, -0.25, 0], [0, 0, 0.125, 0.125]]))


@pytest.mark.parametrize(("clip_high", "slope"), [(0.5, 0.0), (2.0, -0.25 * math.e**0.7)])
def test_the_recipes_clip_decides_whether_a_token_has_a_gradient(clip_high, slope):
    config = step_config(advantage_scale="none", clip_high=clip_high)
    parts, logprob = loss_of(GRPO.compute_advantages(rows(1.0, 0.0, lengths=[1, 1]), config), -0.3, config)
    parts["policy"].backward()
    assert logprob.grad[0, 2].item() == pytest.approx(slope)


@pytest.mark.parametrize(("estimator", "kl"), [("k2", 0.5 * 0.5**2), ("k3", math.expm1(-0.5) + 0.5)])
def test_the_kl_term_is_weighted_and_averaged_like_the_policy_term(estimator, kl):
    """Every token: new log-probability −1, reference −1.5; three tokens in two sequences, one mean."""
    config = step_config({"coef": 0.2, "estimator": estimator})
    samples = [
        dataclasses.replace(row, ref_logprob=torch.where(row.kl_mask, -1.5, torch.nan))
        for row in GRPO.compute_advantages(rows(1.0, 0.0, lengths=[1, 2]), config)
    ]
    parts, _ = loss_of(samples, -1.0, config)
    assert parts["kl"].item() == pytest.approx(0.2 * kl, rel=1e-5)
    assert GRPO.needs_reference(config)
    assert not GRPO.needs_reference(step_config())


@pytest.mark.parametrize("cut", [(), (1,), (2,)])
def test_an_advantage_per_turn_counts_the_rewards_from_that_turn_on(cut):
    # G of a: 2, 1.5, 1.5; of b, which ended after one turn: 1, 1, 1. A = half their difference.
    rows = episode("a", 2.0, (0.5, 0.0, 0.5), cut=cut) + episode("b", 1.0, (0.0,))
    config = step_config(advantage_per="turn", advantage_scale="none")
    credited = GRPO.compute_advantages(rows, config)
    assert [row.sample_id for row in credited] == [row.sample_id for row in rows]
    table = {"a": [], "b": []}
    for row in credited:
        table[row.rollout_id] += row.advantage[row.policy_mask].tolist()
        assert row.advantage[~row.policy_mask].isnan().all()
    assert table == {"a": [0.5, 0.25, 0.25], "b": [-0.5]}


def test_turns_without_reward_have_the_advantage_of_their_episode():
    rows = episode("a", 2.0, (0.0, 0.0)) + episode("b", 1.0, (0.0,)) + episode("c", 1.0, (0.0, 0.0, 0.0))
    by_turn, by_episode = (
        GRPO.compute_advantages(rows, step_config(advantage_per=per)) for per in ("turn", "episode")
    )
    for one, other in zip(by_turn, by_episode, strict=True):
        assert torch.equal(one.advantage.nan_to_num(), other.advantage.nan_to_num())


def test_an_advantage_per_turn_needs_rewards_of_turns():
    with pytest.raises(RewardError, match=r"truing\.PerTurn"):
        GRPO.compute_advantages(rows(1.0, 0.0), step_config(advantage_per="turn"))
