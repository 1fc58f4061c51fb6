"""Samples made by hand, for tests of what is done with them."""

import dataclasses

import torch

from truing.models.forward.collate import collate
from truing.types.passes import Passes
from truing.types.sample import Sample, TurnSpan
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.status import FinishReason
from truing.types.step_table import StepNumbers, StepTable, table_of_samples
from truing.types.token import Excluded, Origin


def sample(prompt: list[int], answer: list[int], *, name: str = "s", group: str = "g", **known) -> Sample:
    """A one-turn rollout: sampled log-probabilities are −1 each unless given."""
    start, length = len(prompt), len(prompt) + len(answer)
    drawn = torch.arange(length) >= start
    sampling_params: SamplingParams = known.pop("sampling_params", RAW)
    logprob = torch.where(drawn, -1.0, torch.nan)
    return Sample.with_defaults(
        sample_id=name,
        group_id=group,
        task_id=group,
        family="test",
        prompt_hash=str(prompt),
        prompt_length=start,
        sampling_params=sampling_params,
        token_ids=torch.tensor(prompt + answer),
        origin=torch.where(drawn, Origin.SAMPLED, Origin.PROMPT).to(torch.uint8),
        **{
            "rollout_id": name,
            "turns": (TurnSpan(start, length, FinishReason.STOP, 0, ""),),
            "policy_mask": drawn,
            "kl_mask": drawn,
            "value_mask": drawn,
            "sampler_logprob": logprob,
            "old_logprob": logprob,
            "old_source": "sampler",
        }
        | known,
    )


def written_by(row: Sample, origin: torch.Tensor) -> Sample:
    """The sample with other origins, and the masks that follow from them."""
    on = origin == Origin.SAMPLED
    return dataclasses.replace(
        row,
        origin=origin.to(torch.uint8),
        excluded=torch.where(on, Excluded.NO, Excluded.NOT_SAMPLED).to(torch.uint8),
        policy_mask=on,
        kl_mask=on,
        value_mask=on,
        supervised_mask=origin == Origin.DEMO,
    )


def demo(prompt: list[int], answer: list[int], name: str) -> Sample:
    """A one-turn demonstration."""
    row = sample(prompt, answer, name=name)
    return written_by(row, torch.where(row.policy_mask, Origin.DEMO, row.origin))


def episode(name: str, reward: float, shares, *, cut=()) -> list[Sample]:
    """A rollout of one token per turn; a new sample begins at the turns in ``cut``."""
    spans = [TurnSpan(1, 2, FinishReason.STOP, 0, "", share) for share in shares]
    samples = []
    for k, span in enumerate(spans):
        if k and k not in cut:
            last = samples[-1]
            ids = [*last.token_ids.tolist()[1:], 5]
            place = dataclasses.replace(span, start=len(ids), end=len(ids) + 1)
            turns = (*last.turns, place)
            samples[-1] = sample([1], ids, name=last.sample_id, rollout_id=name, reward=reward, turns=turns)
        else:
            samples.append(
                sample([1], [5], name=f"{name}#{k}", rollout_id=name, reward=reward, turns=(span,))
            )
    return samples


def weighted_terms(algorithm, setting, samples, scores) -> dict[str, torch.Tensor]:
    """The terms of an algorithm's loss over samples that are one micro-batch, as a step adds them."""
    return {
        term.name: term.weight * term.loss(collate(samples), scores, term.denominator(samples))
        for term in algorithm.terms(setting)
    }


def scored(row: Sample, **computed) -> tuple[Sample, dict[str, torch.Tensor]]:
    """A sample with what its pass computed: a list or a tensor per stream."""
    return row, {name: torch.as_tensor(values) for name, values in computed.items()}


def table_with(*pairs: tuple[Sample, dict[str, torch.Tensor]]) -> StepTable:
    """A step of scored samples, in one optimizer step."""
    names = dict.fromkeys(name for _, computed in pairs for name in computed)
    nothing = [torch.full((len(row),), torch.nan) for row, _ in pairs]
    streams = {
        name: torch.cat([own.get(name, nan) for (_, own), nan in zip(pairs, nothing, strict=True)])
        for name in names
    }
    samples = [row for row, _ in pairs]
    return table_of_samples(StepNumbers("grpo", 0, {}), samples, Passes.one_each(len(pairs), streams))
