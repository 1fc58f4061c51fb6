"""Whether the tokens of an evaluation follow from its random numbers: some of them, drawn again."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from truing.algos.flatten import flatten
from truing.doctor.oracle.draw_replay import TOLERANCE, interval_distance
from truing.doctor.oracle.forward import plain_distributions, plain_scores
from truing.measurements.allowed_ids import AllowedIds, allowed_ids
from truing.measurements.draw_replay import draw_numbers, sampled_mask
from truing.measurements.race_replay import turn_key
from truing.measurements.row_logits import row_logits
from truing.models.forward.score import computed_precision
from truing.models.lora import evaluation_mode
from truing.models.policy import Policy
from truing.rollouts.sampler import Sampler
from truing.types.rollout import RolloutGroup
from truing.types.sample import Sample
from truing.types.status import Status
from truing.utils.rng import permutation, uniforms

ROLLOUTS, TOKENS = 2, 64
"""Replayed rollouts of an evaluation, and the most tokens of each: about a hundredth of what it samples."""

BEHIND = 0.01
"""Nats by which rounding may put the likeliest id behind another one."""


class EvaluatedDraws(NamedTuple):
    """Replayed tokens, and those that do not follow from their random numbers."""

    tokens: int
    missed: int


@torch.no_grad()
def evaluated_draws(
    policy: Policy, sampler: Sampler, groups: Sequence[RolloutGroup], key: tuple[object, ...]
) -> EvaluatedDraws:
    """Replay some rollouts of an evaluation, which the key draws, by a plain forward of the policy.

    Nothing is replayed of other engines than Truing's own, nor in another precision than float32 on the CPU,
    where rounding would need a measurement, nor with several ranks, whose engines are that of one.
    """
    if sampler.engine.draws != "inversion" or policy.ranks.size > 1:
        return EvaluatedDraws(0, 0)
    if computed_precision(policy.module) != "cpu":
        return EvaluatedDraws(0, 0)
    rollouts = [each for group in groups for each in group.rollouts if each.status is not Status.ERROR]
    chosen = [rollouts[i] for i in permutation(len(rollouts), *key, "replayed")[:ROLLOUTS]]
    rows = [row for rollout in chosen for row in flatten(rollout)]
    allowed = allowed_ids(sampler, {group.task.task_id: group.task for group in groups})
    numbers, missed = draw_numbers(rows), [torch.zeros(0, dtype=torch.bool)]
    with evaluation_mode(policy.module):
        for row in rows:
            place_K = sampled_mask(row).nonzero()[:TOKENS, 0]
            if len(place_K):
                missed.append(_missed(policy, row, place_K, numbers[row.sample_id], allowed))
    missed_K = torch.cat(missed)
    return EvaluatedDraws(len(missed_K), int(missed_K.sum()))


def _missed(
    policy: Policy, row: Sample, place_K: Tensor, numbers: Sequence[int], allowed: AllowedIds
) -> Tensor:
    """Return which tokens do not follow, from random numbers, or if greedy from the scores: [K] bool."""
    logits, places = row_logits(policy.module, row), place_K.tolist()
    if row.sampling_params.temperature == 0:
        masks, logits_KV = allowed(row, places), logits(row.token_ids, place_K - 1)
        behind = list[bool]()
        for logits_V, t in zip(logits_KV, places, strict=True):
            scores_V = plain_scores(logits_V, row, t)
            best = scores_V[masks[t]].max() if t in masks else scores_V.max()
            behind.append(bool(best - scores_V[row.token_ids[t]] > BEHIND))
        return torch.tensor(behind)
    uniform_T = torch.zeros(len(row), dtype=torch.float64)
    for number, turn in zip(numbers, row.turns, strict=True):
        uniform_T[turn.start : turn.end] = uniforms(turn.end - turn.start, *turn_key(row, number))
    logprob_KV = torch.stack(plain_distributions(logits, row, places))
    return interval_distance(logprob_KV, row.token_ids[place_K], uniform_T[place_K]) > TOLERANCE
