"""A second computation of rollout rewards: the reward minus penalties for cuts, long turns and the KL."""

import math
from collections import defaultdict
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.oracle.kl import kl_estimates
from truing.types.sample import SampleFacts
from truing.types.token import Origin


class RolloutReward(NamedTuple):
    """A trained rollout with a reward."""

    rollout_id: str
    group_id: str
    tokens: list[int]  # places of the chosen tokens among all N
    rewards: list[float]  # of each token
    total_reward: float  # of the whole rollout
    turns: list[tuple[range, float]]  # places of each turn, and its reward; NaN without turn rewards
    bootstrap_value: float  # the critic's value after a cut end; NaN without one


def rollout_rewards(step: Step) -> list[RolloutReward]:
    """Return one for each rollout, in the order of rows."""
    chosen_N, cost_N = _policy_tokens(step), kl_penalties(step)
    return [_rollout(step, rows, where, chosen_N, cost_N) for rows, where in _rollouts(step)]


def shaped_rewards(step: Step) -> dict[str, dict[str, float]]:
    """Return the shaped reward of each rollout, by group and rollout, in the order of rows."""
    rewards: dict[str, dict[str, float]] = defaultdict(dict)
    for rows, _ in _rollouts(step):
        rewards[rows[0].group_id][rows[0].rollout_id] = shaped_reward(step, rows)
    return rewards


def _rollouts(step: Step) -> list[tuple[list[SampleFacts], list[range]]]:
    """Return the rows of each rollout that is kept and has a reward, and their places among all N.

    Another trainer compares a rollout with its whole group, also with rows that no optimizer step computes.
    """
    others = step.setup.trainer != "truing"
    graded = (
        [each for each in rows if (others or step.kept[each[0]]) and not math.isnan(each[1].reward)]
        for rows in step.rollouts()
    )
    return [
        ([row for _, row, _ in rows], [range(part.start, part.stop) for *_, part in rows])
        for rows in graded
        if rows
    ]


def _rollout(
    step: Step, rows: list[SampleFacts], where: list[range], chosen_N: Tensor, cost_N: Tensor
) -> RolloutReward:
    """Place turn rewards at the ends of turns, and the rest at the last chosen token."""
    tokens = [
        places.start + t
        for places in where
        for t in chosen_N[places.start : places.stop].nonzero()[:, 0].tolist()
    ]
    at = {t: k for k, t in enumerate(tokens)}
    rewards = (-cost_N[tokens]).tolist()
    left = shaped_reward(step, rows)
    turns: list[tuple[range, float]] = []
    for row, places in zip(rows, where, strict=True):
        for turn in row.turns:
            span = range(places.start + turn.start, places.start + turn.end)
            costs = math.fsum(cost_N[span.start : span.stop].tolist())
            turns.append((span, turn.reward - costs))
            if not math.isnan(turn.reward) and tokens:
                before = [at[t] for t in tokens if t < span.stop]
                rewards[before[-1] if before else 0] += turn.reward
                left -= turn.reward
    if tokens:
        rewards[-1] += left
    cost = sum(float(cost_N[places.start : places.stop].sum()) for places in where)
    last = rows[-1]
    after = last.bootstrap_value if last.truncated else math.nan
    return RolloutReward(
        last.rollout_id, last.group_id, tokens, rewards, shaped_reward(step, rows) - cost, turns, after
    )


def shaped_reward(step: Step, rows: list[SampleFacts]) -> float:
    """Return the reward of a rollout, minus the declared penalties for a cut and for its longest turn.

    The latter grows over the last tokens before the limit (https://arxiv.org/abs/2503.14476 eq. 13).
    """
    setup, reward = step.setup, rows[0].reward
    if setup.truncated == "penalize" and rows[-1].truncated:
        reward -= setup.truncated_penalty or 0.0
    if setup.overlong_tokens and setup.max_new_tokens is not None:
        longest = max((turn.end - turn.start for row in rows for turn in row.turns), default=0)
        begins = setup.max_new_tokens - setup.overlong_tokens
        share = min(1.0, max(0.0, (longest - begins) / setup.overlong_tokens))
        reward -= (setup.overlong_penalty or 0.0) * share
    return reward


def kl_penalties(step: Step) -> Tensor:
    """Return the cost of the KL in the reward at each token: [N] float64.

    0 without a KL in the reward, NaN if it is not recorded.
    """
    setup, nothing_N = step.setup, torch.zeros(len(step.sample_of_token), dtype=torch.float64)
    weight = step.metrics.get("weight/kl", setup.kl_coef or 0.0)
    if setup.kl_where != "reward" or not weight:
        return nothing_N
    if not all(step.has(name) for name in ("ref_logprob", "old_logprob", "kl_mask")):
        return nothing_N.fill_(math.nan)
    apart_N = step.tokens["old_logprob"].double() - step.tokens["ref_logprob"].double()
    estimate_N = kl_estimates(apart_N)[setup.kl_estimator or "k3"]
    return torch.where(step.tokens["kl_mask"].bool(), weight * estimate_N, nothing_N)


def _policy_tokens(step: Step) -> Tensor:
    """Return the tokens that the policy chose: [N] bool."""
    origin_N = step.tokens.get("origin")
    return step.tokens["policy_mask"].bool() if origin_N is None else origin_N == Origin.SAMPLED
