"""Rollouts and demonstrations to Samples: token streams, and the masks that follow from origin."""

from dataclasses import replace

import torch
from torch import Tensor

from truing.chat import Prompt
from truing.ops.masks import kl_mask, policy_mask, supervised_mask, value_mask
from truing.types import (
    RAW,
    FinishReason,
    Origin,
    Rollout,
    Sample,
    SamplingContract,
    Support,
    Task,
    Turn,
    TurnSpan,
)


def flatten(rollout: Rollout) -> Sample:
    """One sample per rollout: each turn's context, then what was drawn.

    Two turns, context of 3 and 1 ids, 2 and 1 drawn:
    origin P P P S S O S · turns [3, 5) and [6, 7) · sampler_logprob NaN where not S.
    """
    ids, origins, logprobs, spans, length = [], [], [], [], 0
    for turn in rollout.turns:
        start = length + len(turn.context_ids)
        length = start + len(turn.token_ids)
        drawn = torch.full((len(turn.token_ids),), Origin.SAMPLED, dtype=torch.uint8)
        ids += [turn.context_ids, turn.token_ids]
        origins += [turn.context_origin, drawn]
        logprobs += [torch.full((len(turn.context_ids),), torch.nan), turn.sampler_logprob]
        spans.append(TurnSpan(start, length, turn.finish_reason, turn.sampler_version, turn.weight_digest))
    first = rollout.turns[0]
    origin = torch.cat(origins)
    sampler_logprob = torch.cat(logprobs)
    return Sample.bare(
        sample_id=rollout.rollout_id,
        rollout_id=rollout.rollout_id,
        group_id=rollout.group_id,
        task_id=rollout.task.task_id,
        family=rollout.task.family,
        prompt_hash=Prompt(first.context_ids, first.context_origin).hash,
        prompt_length=len(first.context_ids),
        turns=tuple(spans),
        contract=rollout.contract,
        reward=rollout.reward,
        token_ids=torch.cat(ids),
        origin=origin,
        policy_mask=policy_mask(origin),
        kl_mask=kl_mask(origin),
        value_mask=value_mask(origin),
        sampler_logprob=sampler_logprob,
        old_logprob=sampler_logprob,
        old_source="sampler",
        support=_join_supports(rollout.turns, rollout.contract),
    )


def demonstration(task: Task, prompt: Prompt, answer_ids: Tensor, sample_id: str) -> Sample:
    """A demonstration as a sample: the ids a policy would have drawn, trained by supervised terms only."""
    origin = torch.cat([prompt.origin, torch.full((len(answer_ids),), Origin.DEMO, dtype=torch.uint8)])
    start = len(prompt.token_ids)
    return Sample.bare(
        sample_id=sample_id,
        rollout_id=sample_id,
        group_id=sample_id,
        task_id=task.task_id,
        family=task.family,
        prompt_hash=prompt.hash,
        prompt_length=start,
        turns=(TurnSpan(start, len(origin), FinishReason.DEMO, 0, ""),),
        contract=RAW,
        token_ids=torch.cat([prompt.token_ids, answer_ids]),
        origin=origin,
        supervised_mask=supervised_mask(origin),
    )


def as_demonstration(rollout: Rollout) -> Sample:
    """A rollout that is kept as an example: its drawn ids become DEMO, scored without a contract."""
    row = flatten(rollout)
    drawn, nothing = row.policy_mask, torch.zeros_like(row.policy_mask)
    unknown = torch.full_like(row.sampler_logprob, torch.nan)
    return replace(
        row,
        contract=RAW,
        origin=torch.where(drawn, Origin.DEMO, row.origin).to(torch.uint8),
        policy_mask=nothing,
        kl_mask=nothing,
        value_mask=nothing,
        supervised_mask=drawn,
        sampler_logprob=unknown,
        old_logprob=unknown,
        old_source="",
        support=None,
    )


def _join_supports(turns: tuple[Turn, ...], contract: SamplingContract) -> Support | None:
    """The supports of all turns over the whole sample; context tokens have none."""
    if not contract.truncates:
        return None
    ids, counts = [], [torch.zeros(1, dtype=torch.long)]
    for turn in turns:
        assert turn.support is not None  # the sampler records one wherever the contract truncates
        counts += [torch.zeros(len(turn.context_ids), dtype=torch.long), turn.support.splits.diff()]
        ids.append(turn.support.ids)
    return Support(torch.cat(ids), torch.cat(counts).cumsum(0))
