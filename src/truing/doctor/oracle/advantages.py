"""What advantages come to once more, token by token, from the rewards, groups and values of an update."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Row, Step
from truing.doctor.oracle.credit import deviation, gae, group_advantage, mean
from truing.types import Origin

EPS = 1e-4
"""What is added to the deviation where that is not declared, reward units."""


def of_groups(step: Step) -> Tensor:
    """Advantages within groups: [N] float64, NaN of rows without a group or a reward."""
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for row in step.rows:
        if row.kept and not math.isnan(row.reward):
            groups[row.group_id][row.rollout_id] = row.reward
    everybody = [reward for group in groups.values() for reward in group.values()]
    assert step.setup.advantage is not None
    # ours leave failed attempts out of their group; another trainer's update may hold a part of one
    least = 2 if step.setup.trainer == "truing" else step.setup.group_size or 2
    how, eps = step.setup.advantage, step.setup.advantage_eps or 0.0
    expected = [
        group_advantage(row.reward, list(groups[row.group_id].values()), everybody, how, eps)
        if row.rollout_id in groups[row.group_id] and len(groups[row.group_id]) > max(1, least - 1)
        else math.nan
        for row in step.rows
    ]
    return torch.tensor(expected, dtype=torch.float64)[step.row]


class Chain(NamedTuple):
    """The tokens that the policy chose in a rollout, and what it earned."""

    tokens: list[int]  # places among all N
    values: list[float]
    reward: float
    after: float  # what the critic said of the state after a cut end; NaN where there is none


def chains_of(step: Step) -> list[Chain]:
    """One for each rollout that is trained on and has a reward, in the order of its rows."""
    origin_N = step.tokens.get("origin")
    chosen_N = step.tokens["policy_mask"] if origin_N is None else origin_N == Origin.SAMPLED
    parts: dict[str, list[tuple[int, Row, slice]]] = defaultdict(list)
    for index, row, part in step.slices():
        if row.kept and not math.isnan(row.reward):
            number = row.sample_id.rpartition("#")[2] if "#" in row.sample_id else ""
            parts[row.rollout_id].append((int(number) if number.isdigit() else index, row, part))
    chains = []
    for rows in parts.values():
        rows.sort(key=lambda each: each[0])
        tokens = [t for _, _, part in rows for t in (chosen_N[part].nonzero()[:, 0] + part.start).tolist()]
        if tokens:
            last = rows[-1][1]
            after = last.bootstrap_value if last.truncated else math.nan
            chains.append(Chain(tokens, step.tokens["value"][tokens].tolist(), last.reward, after))
    return chains


def of_chains(
    step: Step,
    chains: Sequence[Chain],
    *,
    bootstrapped: bool,
    whiten: bool,
    gamma: float | None = None,
    lam: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns and advantages of GAE, both [N] float64 and NaN where there are none."""
    gamma, lam = step.setup.gamma if gamma is None else gamma, step.setup.lam if lam is None else lam
    assert gamma is not None
    assert lam is not None
    returns, advantages = [math.nan] * len(step.row), [math.nan] * len(step.row)
    for chain in chains:
        last_value = chain.after if bootstrapped and not math.isnan(chain.after) else 0.0
        rewards = [0.0] * (len(chain.tokens) - 1) + [chain.reward]
        for token, advantage, value in zip(
            chain.tokens, *gae(rewards, chain.values, last_value, gamma, lam), strict=True
        ):
            advantages[token], returns[token] = advantage, value
    if whiten:
        trained = step.tokens["policy_mask"].nonzero()[:, 0].tolist()
        known = [advantages[t] for t in trained if not math.isnan(advantages[t])]
        if len(known) > 1:
            middle, spread = mean(known), deviation(known) + (step.setup.advantage_eps or EPS)
            equal = min(known) == max(known)
            advantages = [0.0 if equal and not math.isnan(a) else (a - middle) / spread for a in advantages]
    return torch.tensor(returns, dtype=torch.float64), torch.tensor(advantages, dtype=torch.float64)
