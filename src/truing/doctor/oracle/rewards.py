"""What each rollout earned once more: its reward, less what being cut, a long turn and the KL cost it."""

import math
from collections import defaultdict
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Row, Step
from truing.types.token import Origin


class RolloutReward(NamedTuple):
    """A rollout that is trained on and has a reward."""

    rollout_id: str
    group_id: str
    tokens: list[int]  # places among all N of what the policy chose
    rewards: list[float]  # what each of them earned
    total_reward: float  # of the whole rollout
    turns: list[tuple[range, float]]  # places of each turn, and what it earned; NaN where none is judged
    bootstrap_value: float  # what the critic said of the state after a cut end; NaN where there is none


def rollout_rewards(step: Step) -> list[RolloutReward]:
    """One for each rollout, in the order of its rows."""
    chosen_N, cost_N = _policy_tokens(step), kl_penalties(step)
    parts: dict[str, list[tuple[int, Row, slice]]] = defaultdict(list)
    for index, row, part in step.slices():
        if row.kept and not math.isnan(row.reward):
            number = row.sample_id.rpartition("#")[2] if "#" in row.sample_id else ""
            parts[row.rollout_id].append((int(number) if number.isdigit() else index, row, part))
    found = []
    for rows in parts.values():
        rows.sort(key=lambda each: each[0])
        where = [range(part.start, part.stop) for _, _, part in rows]
        found.append(_rollout(step, [row for _, row, _ in rows], where, chosen_N, cost_N))
    return found


def _rollout(
    step: Step, rows: list[Row], where: list[range], chosen_N: Tensor, cost_N: Tensor
) -> RolloutReward:
    """Shares of turns come at their ends, the rest of the reward at the last token that was chosen."""
    tokens = [t for places in where for t in places if chosen_N[t]]
    at = {t: k for k, t in enumerate(tokens)}
    rewards = [-float(cost_N[t]) for t in tokens]
    left = shaped_reward(step, rows)
    turns: list[tuple[range, float]] = []
    for row, places in zip(rows, where, strict=True):
        for turn in row.turns:
            span = range(places.start + turn.start, places.start + turn.end)
            costs = sum(float(cost_N[t]) for t in span)
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


def shaped_reward(step: Step, rows: list[Row]) -> float:
    """The reward of a rollout, less the declared penalties for being cut and for its longest turn.

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
    """What the KL in the reward takes off each token: [N] float64.

    0 where there is none or it is in the loss, NaN where it is not on record.
    """
    setup, nothing_N = step.setup, torch.zeros(len(step.row_of_token), dtype=torch.float64)
    weight = step.numbers.get("weight/kl", setup.kl_coef or 0.0)
    if setup.kl_where != "reward" or not weight:
        return nothing_N
    if not all(step.has(name) for name in ("ref_logprob", "old_logprob", "kl_mask")):
        return nothing_N.fill_(math.nan)
    apart_N = step.tokens["old_logprob"].double() - step.tokens["ref_logprob"].double()
    estimate_N = {
        "k1": apart_N,
        "k2": apart_N.square() / 2,
        "k3": torch.expm1(-apart_N) + apart_N,
    }[setup.kl_estimator or "k3"]
    return torch.where(step.tokens["kl_mask"].bool(), weight * estimate_N, nothing_N)


def _policy_tokens(step: Step) -> Tensor:
    """Tokens that the policy chose: [N] bool."""
    origin_N = step.tokens.get("origin")
    return step.tokens["policy_mask"].bool() if origin_N is None else origin_N == Origin.SAMPLED
