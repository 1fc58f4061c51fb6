"""Group-relative policy optimisation and its relatives: one sampled group is its own baseline.

The PPO clip is ``clipped_surrogate`` in ops/losses.py; the table of objectives is ``OBJECTIVES`` there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from truing.algos.base import Algorithm
from truing.config import GrpoConfig
from truing.errors import RewardError
from truing.ops.advantages import group_advantages, turn_returns
from truing.ops.aggregate import aggregate, denominator
from truing.ops.kl import kl_k2, kl_k3
from truing.ops.losses import OBJECTIVES, Objective, policy_loss
from truing.ops.masks import MaskPolicy
from truing.rollout.flatten import flatten
from truing.types import Batch, Rollout, Sample, Scores

KL_IN_LOSS = {"k2": kl_k2, "k3": kl_k3}
"""k1 is not among them: as a loss its gradient is 0 on average. ops/kl.py says what each one pulls at."""


def objective(cfg: GrpoConfig) -> Objective:
    """The named objective, with the recipe's clip range where it gives one."""
    given = {"clip_low": cfg.clip_low, "clip_high": cfg.clip_high}
    return replace(
        OBJECTIVES[cfg.objective], **{name: value for name, value in given.items() if value is not None}
    )


def all_samples(rollouts: Sequence[Rollout], cfg: GrpoConfig, mask: MaskPolicy) -> list[Sample]:
    """Every rollout is trained on."""
    return [sample for rollout in rollouts for sample in flatten(rollout, mask)]


def credit(samples: Sequence[Sample], cfg: GrpoConfig) -> list[Sample]:
    """One advantage per rollout, or one per turn, written on the trained tokens."""
    rollouts: dict[str, list[Sample]] = {}  # one of many turns may be many samples
    for sample in samples:
        rollouts.setdefault(sample.rollout_id, []).append(sample)
    firsts = [parts[0] for parts in rollouts.values()]
    number = {group: i for i, group in enumerate(dict.fromkeys(sample.group_id for sample in firsts))}
    rewards_R = torch.tensor([sample.reward for sample in firsts], dtype=torch.float64)
    group_R = torch.tensor([number[sample.group_id] for sample in firsts])
    if cfg.advantage_per == "episode":
        advantage_R = group_advantages(rewards_R, group_R, cfg.advantage_scale).tolist()
        earned = dict(zip(rollouts, advantage_R, strict=True))
        return [_write(sample, [earned[sample.rollout_id]] * len(sample.turns)) for sample in samples]
    returns_RK = turn_returns(rewards_R, _turn_rewards(rollouts))
    each_KR = [group_advantages(return_R, group_R, cfg.advantage_scale) for return_R in returns_RK.T]
    advantage_RK = torch.stack(each_KR, dim=1).tolist()
    left = {rollout: iter(advantage_K) for rollout, advantage_K in zip(rollouts, advantage_RK, strict=True)}
    return [_write(sample, list(islice(left[sample.rollout_id], len(sample.turns)))) for sample in samples]


def _write(sample: Sample, advantages: Sequence[float]) -> Sample:
    """A sample with the advantage of each of its turns on the tokens that are trained."""
    stream = torch.full(sample.policy_mask.shape, torch.nan)
    for turn, advantage in zip(sample.turns, advantages, strict=True):
        stream[turn.start : turn.end] = advantage
    return replace(sample, advantage=stream.masked_fill(~sample.policy_mask, torch.nan))


def _turn_rewards(rollouts: Mapping[str, Sequence[Sample]]) -> Tensor:
    """What each turn earned: [R, K]; 0 where a rollout had no such turn."""
    rows = [
        torch.tensor([turn.reward for sample in parts for turn in sample.turns], dtype=torch.float64)
        for parts in rollouts.values()
    ]
    for rollout, row in zip(rollouts, rows, strict=True):
        if row.isnan().any():
            raise no_turn_rewards(f"rollout {rollout}")
    return pad_sequence(rows, batch_first=True)


def no_turn_rewards(where: str) -> RewardError:
    """What is wrong where no turn has a reward of its own."""
    return RewardError(
        "an advantage per turn needs rewards of turns",
        got=f"none for {where}",
        expected="a reward function that returns truing.PerTurn",
        remedy='judge each turn, or set grpo.advantage_per = "episode"',
    )


def minibatch_denominator(samples: Sequence[Sample], cfg: GrpoConfig) -> float:
    """Tokens, sequences, or sequences × max_new_tokens, as the objective aggregates."""
    counts = torch.tensor([int(sample.policy_mask.sum()) for sample in samples])
    return denominator(counts, objective(cfg).aggregation, samples[0].contract.max_new_tokens)


def pulls(sample: Sample, cfg: GrpoConfig) -> bool:
    """An advantage of 0 has no gradient, under any objective: only the KL term asks for such a sample."""
    credited = bool((sample.advantage[sample.policy_mask] != 0).any())
    return credited or (cfg.kl_coef > 0 and bool(sample.kl_mask.any()))


def loss(batch: Batch, scores: Scores, cfg: GrpoConfig, denominator: float) -> dict[str, Tensor]:
    """The policy term, and the KL term where the recipe gives it weight."""
    chosen = objective(cfg)
    policy = policy_loss(
        scores.logprob,
        batch.old_logprob,
        batch.advantage,
        batch.policy_mask,
        objective=chosen,
        denominator=denominator,
    )
    if cfg.kl_coef == 0:
        return {"policy": policy}
    kl_BT = KL_IN_LOSS[cfg.kl_estimator](scores.logprob, batch.ref_logprob)
    return {
        "policy": policy,
        "kl": cfg.kl_coef * aggregate(kl_BT, batch.kl_mask, chosen.aggregation, denominator),
    }


GRPO = Algorithm(
    source="rollouts",
    to_samples=all_samples,
    needs_reference=lambda cfg: cfg.kl_coef > 0,
    objective=objective,
    credit=credit,
    denominator=minibatch_denominator,
    pulls=pulls,
    loss=loss,
)
