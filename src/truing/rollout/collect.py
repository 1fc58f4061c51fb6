"""Tasks to graded groups: each task is answered ``group_size`` times and every answer is graded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from transformers import PreTrainedTokenizerBase

from truing.chat import Prompt, decode_answer, render_prompt
from truing.sample.hf import Completion, Request
from truing.types import FinishReason, Rollout, RolloutGroup, SamplingContract, Status, Task, Turn

Grade = Callable[[Rollout], tuple[float, Mapping[str, float]]]


class Sampler(Protocol):
    """Draws completions; ``version`` and ``weight_digest`` name the weights it holds."""

    version: int
    weight_digest: str

    def generate(self, requests: Sequence[Request], contract: SamplingContract) -> list[Completion]:
        """One completion per request, in their order."""
        ...


def collect(
    tasks: Sequence[Task],
    *,
    group_size: int,
    sampler: Sampler,
    tokenizer: PreTrainedTokenizerBase,
    contract: SamplingContract,
    grade: Grade,
    key: tuple[object, ...],
) -> list[RolloutGroup]:
    """Answer each task ``group_size`` times; ``key`` names the occasion (seed, stage, step).

    Ids and random numbers go by a task's place and not by its id: where an epoch ends within a step, one
    task may be there twice, and its two groups are as apart as any.
    """
    prompts = [render_prompt(tokenizer, task.messages) for task in tasks]
    requests = [
        Request(prompt.token_ids, (*key, place, k))
        for place, prompt in enumerate(prompts)
        for k in range(group_size)
    ]
    completions = iter(sampler.generate(requests, contract))
    groups = []
    for place, (task, prompt) in enumerate(zip(tasks, prompts, strict=True)):
        group_id = "/".join(map(str, (*key, place)))
        rollouts = []
        for k in range(group_size):
            turn = _turn(prompt, next(completions), sampler)
            text = decode_answer(tokenizer, turn.token_ids, contract.stop_ids)
            status = Status.TRUNCATED if turn.finish_reason is FinishReason.LENGTH else Status.DONE
            rollout = Rollout(f"{group_id}/{k}", group_id, task, (turn,), text, status, contract)
            reward, parts = grade(rollout)
            rollouts.append(replace(rollout, reward=reward, reward_parts=parts))
        groups.append(RolloutGroup(group_id, task, tuple(rollouts)))
    return groups


def _turn(prompt: Prompt, completion: Completion, sampler: Sampler) -> Turn:
    """A completion, with what it was shown and who drew it."""
    return Turn(
        context_ids=prompt.token_ids,
        context_origin=prompt.origin,
        token_ids=completion.token_ids,
        sampler_logprob=completion.logprob.to(torch.float32),
        finish_reason=completion.finish_reason,
        sampler_version=sampler.version,
        weight_digest=sampler.weight_digest,
        support=completion.support,
    )
