"""From rollouts to samples: token streams, and the masks that follow from origin."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from truing.errors import InvalidValueError
from truing.ops.masks import MaskPolicy, exclusion_reasons, kl_mask, supervised_mask, value_mask
from truing.types.rollout import Prompt, Rollout, Turn
from truing.types.sample import Sample, TurnSpan
from truing.types.sampling_params import RAW
from truing.types.status import Status
from truing.types.token import Excluded, Origin, Support
from truing.types.turn_routes import join_routes


def flatten(rollout: Rollout, mask: MaskPolicy = "sampled") -> list[Sample]:
    """Return the samples of a rollout: one, plus one from each turn that has a ``restart_reason``.

    Two turns, context of 3 and 1 ids, 2 and 1 sampled:
    origin P P P S S O S · turns [3, 5) and [6, 7) · sampler_logprob is NaN except at S.
    """
    samples, first_turn = [], 0
    for sample_id, turns in turns_by_sample(rollout).items():
        rewards = rollout.turn_rewards[first_turn : first_turn + len(turns)] or (math.nan,) * len(turns)
        sample = _sample(rollout, turns, rewards, sample_id, mask)
        if rollout.sample_messages:
            sample = replace(sample, messages=rollout.sample_messages[len(samples)])
        samples.append(sample if turns[0].trained else _other_conversation(sample))
        first_turn += len(turns)
    if rollout.status is Status.TRUNCATED:
        last = max((i for i, each in enumerate(samples) if not is_other_conversation(each)), default=-1)
        samples[last] = replace(samples[last], truncated=True)
    return samples


def turns_by_sample(rollout: Rollout) -> dict[str, Sequence[Turn]]:
    """Return the turns of each sample of a rollout, by the sample's id."""
    starts = [i for i, turn in enumerate(rollout.turns) if i == 0 or turn.restart_reason]
    parts = [rollout.turns[a:b] for a, b in zip(starts, [*starts[1:], None][: len(starts)], strict=True)]
    if len(parts) == 1:
        return {rollout.rollout_id: parts[0]}
    return {f"{rollout.rollout_id}#{i}": part for i, part in enumerate(parts)}


def as_demonstration(rollout: Rollout) -> Rollout:
    """Return a rollout to imitate: its sampled ids become DEMO, scored with raw logits."""
    return replace(
        rollout, turns=tuple(_as_demonstration(turn) for turn in rollout.turns), sampling_params=RAW
    )


def is_other_conversation(sample: Sample) -> bool:
    """Whether a sample is of a conversation of a program that the recipe does not train."""
    return bool((sample.excluded == Excluded.OTHER_CONVERSATION).any())


def _other_conversation(sample: Sample) -> Sample:
    """Return a sample of a conversation that is not trained; its sampled and demonstrated tokens say so."""
    generated = (sample.origin == Origin.SAMPLED) | (sample.origin == Origin.DEMO)
    excluded = torch.where(generated, Excluded.OTHER_CONVERSATION, sample.excluded).to(torch.uint8)
    off = torch.zeros_like(sample.policy_mask)
    return without_loss_terms(replace(sample, excluded=excluded, policy_mask=off))


def without_loss_terms(sample: Sample) -> Sample:
    """Return a sample that is recorded but enters no loss term."""
    off = torch.zeros_like(sample.policy_mask)
    sample = without_policy_term(sample, Excluded.NOT_KEPT)
    return replace(sample, kl_mask=off, value_mask=off, supervised_mask=off)


def without_policy_term(sample: Sample, reason: Excluded) -> Sample:
    """Return a sample without policy term; each of its tokens records the reason."""
    excluded = torch.where(sample.policy_mask, reason, sample.excluded).to(torch.uint8)
    return replace(sample, excluded=excluded, policy_mask=torch.zeros_like(sample.policy_mask))


def _sample(
    rollout: Rollout, turns: Sequence[Turn], rewards: Sequence[float], sample_id: str, mask: MaskPolicy
) -> Sample:
    """Return turns that extend each other, with their rewards, as one sample."""
    spans, ids, origins, structures, logprobs, forced, length = [], [], [], [], [], [], 0
    for turn, reward in zip(turns, rewards, strict=True):
        context, generated = len(turn.context_ids), len(turn.token_ids)
        start, length = length + context, length + context + generated
        ids += [turn.context_ids, turn.token_ids]
        origins += [turn.context_origin, turn.origin]
        structures += [torch.zeros(context, dtype=torch.bool), turn.structure]
        logprobs += [torch.full((context,), torch.nan), turn.sampler_logprob]
        prefilled = bool((turn.context_origin == Origin.FORCED).any())
        forced += [torch.full((context + generated,), prefilled)]
        sampled_by = (turn.finish_reason, turn.sampler_version, turn.weight_digest)
        spans.append(TurnSpan(start, length, *sampled_by, reward, turn.call))
    origin, structure, sampler_logprob = torch.cat(origins), torch.cat(structures), torch.cat(logprobs)
    excluded = exclusion_reasons(origin, structure, torch.cat(forced), mask)
    return Sample.with_defaults(
        sample_id=sample_id,
        rollout_id=rollout.rollout_id,
        group_id=rollout.group_id,
        task_id=rollout.task.task_id,
        family=rollout.task.family,
        prompt_hash=Prompt(turns[0].context_ids, turns[0].context_origin).hash,
        prompt_length=len(turns[0].context_ids),
        turns=tuple(spans),
        sampling_params=rollout.sampling_params,
        reward=rollout.reward,
        reward_parts=rollout.reward_parts,
        text=rollout.text,
        status=rollout.status,
        ended_by=rollout.ended_by,
        messages=(*rollout.task.messages, *rollout.messages),
        outcome=rollout.outcome,
        error=rollout.error,
        token_ids=torch.cat(ids),
        origin=origin,
        structure=structure,
        excluded=excluded,
        policy_mask=excluded == Excluded.NO,
        kl_mask=kl_mask(origin),
        value_mask=value_mask(origin),
        supervised_mask=supervised_mask(origin),
        sampler_logprob=sampler_logprob,
        old_logprob=sampler_logprob,
        old_source="sampler" if (origin == Origin.SAMPLED).any() else "",
        support=_join_supports(turns) if any(turn.support is not None for turn in turns) else None,
        routes=join_routes(turns),
    )


def _as_demonstration(turn: Turn) -> Turn:
    """Return a turn whose sampled ids are DEMO; prefilled ids stay context."""
    generated = turn.origin == Origin.SAMPLED
    return replace(
        turn,
        origin=torch.where(generated, Origin.DEMO, turn.origin).to(torch.uint8),
        sampler_logprob=torch.full_like(turn.sampler_logprob, torch.nan),
        support=None,
        routes=None,
    )


def _join_supports(turns: Sequence[Turn]) -> Support:
    """Return the supports of all turns over the whole sample; context tokens have none."""
    ids, counts = [], [torch.zeros(1, dtype=torch.long)]
    for turn in turns:
        if turn.support is None:
            raise InvalidValueError(
                "some turns of a rollout have no record of the ids that they could be sampled from",
                got=f"none of turn {len(ids) + 1} of {len(turns)}",
                expected="one of each turn: all have the same sampling parameters and the same grammar",
            )
        counts += [torch.zeros(len(turn.context_ids), dtype=torch.long), turn.support.splits.diff()]
        ids.append(turn.support.ids)
    return Support(torch.cat(ids), torch.cat(counts).cumsum(0))
