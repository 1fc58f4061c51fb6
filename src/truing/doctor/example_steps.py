"""Healthy steps for the examples of rules and their tests, to be broken by them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from truing.analysis.evaluation import Evaluation
from truing.analysis.stage_gain import stage_gain
from truing.doctor.evidence import Setup, Step, changed_step, last_passes
from truing.doctor.oracle.credit import group_advantage
from truing.doctor.oracle.token_gradients import expected_token_gradients
from truing.types.facts import Facts
from truing.types.passes import Passes
from truing.types.sample import SampleFacts, TurnSpan
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.step_table import StepNumbers, starts_of
from truing.types.token import Excluded, Origin

STOP_ID, OPENING_ID = 2, 9
"""Ids: the stop, and the template's opening before an answer."""

GRPO_SETUP = Setup(
    algo="grpo",
    mask="sampled",
    group_size=4,
    advantage="group",
    advantage_eps=1e-4,
    inner_steps=1,
    on_policy=True,
    surrogate="clip",
    ratio="token",
    aggregation="sequence_mean",
    clip_low=0.2,
    clip_high=0.2,
    kl_coef=0.0,
    truncated="keep",
    plain=True,
    reference_moves=False,
    dropout=False,
    stop_ids=(STOP_ID,),
    bos_id=1,
    max_new_tokens=8,
    learning_rate=1e-3,
)


def example_step(
    *,
    prompt: int = 4,
    answers: Sequence[int] = (4, 3, 5, 4, 4, 3, 4, 5),
    rewards: Sequence[float] = (1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.0, 1.0),
    setup: Mapping[str, Any] = {},
    evaluated: Sequence[Evaluation] = (),
) -> Step:
    """Return an on-policy step of GRPO: groups of four, one turn each, every answer ended by its stop.

    Args:
        prompt: tokens of each prompt; the first is BOS, the last a template's.
        answers: tokens of each answer, with its stop.
        rewards: of each answer.
        setup: changed settings.
        evaluated: evaluations of the stage so far.
    """
    declared = replace(GRPO_SETUP, **setup)
    samples, streams = [], []
    for index, (length, reward) in enumerate(zip(answers, rewards, strict=True)):
        samples.append(_sample(index, prompt, length, reward))
        streams.append(_streams(index, prompt, length))
    tokens = {name: torch.cat([each[name] for each in streams]) for name in streams[0]}
    new_logprob_N = tokens["old_logprob"]
    step = Step(
        stage="grpo",
        step=0,
        setup=declared,
        samples=samples,
        starts=starts_of([prompt + length for length in answers]),
        streams=tokens,
        passes=Passes.one_each(len(samples), {"new_logprob": new_logprob_N}),
        metrics={"grad/norm": 1.0, "lr": 1e-3, "alignment": 1.0},
        facts={"weights": {"before": "a", "after": "b", "next": "b"}},
        gain=stage_gain(evaluated),
    )
    advantage = [
        group_advantage(
            reward,
            rewards[i // 4 * 4 : i // 4 * 4 + 4],
            rewards,
            declared.advantage or "group",
            declared.advantage_eps or 0.0,
        )
        for i, reward in enumerate(rewards)
    ]
    advantage_N = torch.tensor(advantage)[step.sample_of_token].masked_fill(~tokens["policy_mask"], torch.nan)
    return with_token_gradients(changed_step(step, advantage=advantage_N))


def example_evaluation(name: str, rewards: Sequence[float]) -> Evaluation:
    """Return an evaluation of as many tasks."""
    by_task = {f"eval-{i}": reward for i, reward in enumerate(rewards)}
    return Evaluation(name, by_task, {}, {}, {}, (0.0, 1.0))


def with_optimizer_steps(step: Step, numbers: Mapping[int, int]) -> Step:
    """Return the step with other optimizer steps of samples, by index; −1 for a sample that has none."""
    last_B = torch.tensor(
        [numbers.get(index, int(number)) for index, number in enumerate(step.optimizer_step_of_sample)]
    )
    return replace(step, passes=last_passes(step, last_B, step.tokens))


def with_ranks(step: Step, ranks: Sequence[int]) -> Step:
    """Return the step with its samples' passes on these ranks."""
    rank_P = torch.tensor(ranks)[step.passes.sample]
    return replace(step, passes=replace(step.passes, rank=rank_P))


def with_token_gradients(step: Step) -> Step:
    """Return the step with the token gradients that follow from its other numbers."""
    token_gradient_N = expected_token_gradients(step).masked_fill(~step.tokens["policy_mask"], torch.nan)
    return changed_step(step, token_gradient=token_gradient_N.float())


def past_step(
    step: int,
    *,
    stage: str = "grpo",
    facts: Mapping[str, Any] = {},
    metrics: Mapping[str, float] = {},
    **named: float,
) -> StepNumbers:
    """Return an earlier step; ``reward_mean=0.5`` is its ``reward/mean``."""
    also = {name.replace("_", "/", 1): value for name, value in named.items()}
    return StepNumbers(stage, step, {**metrics, **also}, Facts(**facts))


def _sample(index: int, prompt: int, length: int, reward: float) -> SampleFacts:
    turn = TurnSpan(prompt, prompt + length, FinishReason.STOP, 0, "a")
    return SampleFacts(
        sample_id=f"s{index}",
        rollout_id=f"s{index}",
        group_id=f"g{index // 4}",
        task_id=f"t{index // 4}",
        family="sums",
        prompt_hash=f"p{index // 4}",
        prompt_length=prompt,
        turns=(turn,),
        sampling_params=SamplingParams(max_new_tokens=8, stop_ids=(STOP_ID,)),
        reward=reward,
        reward_parts={"exact": reward},
        status="done",
        truncated=False,
        text="4",
    )


def _streams(index: int, prompt: int, length: int) -> dict[str, Tensor]:
    total = prompt + length
    generator = torch.Generator().manual_seed(index)
    sampled = torch.arange(total) >= prompt
    ids = torch.randint(20, 40, (total,), generator=generator)
    ids[:prompt] = torch.tensor([1, *range(10 + 3 * (index // 4), 9 + 3 * (index // 4) + prompt)])
    ids[prompt - 1] = OPENING_ID
    ids[-1] = STOP_ID
    logprob = (-2 * torch.rand(total, generator=generator)).masked_fill(~sampled, torch.nan)
    origin = torch.where(sampled, Origin.SAMPLED, Origin.PROMPT)
    origin[prompt - 1] = Origin.TEMPLATE
    return {
        "token_ids": ids,
        "origin": origin.to(torch.uint8),
        "structure": torch.zeros(total, dtype=torch.bool),
        "excluded": torch.where(sampled, Excluded.NO, Excluded.NOT_SAMPLED).to(torch.uint8),
        "policy_mask": sampled,
        "kl_mask": sampled,
        "supervised_mask": torch.zeros(total, dtype=torch.bool),
        "sampler_logprob": logprob,
        "old_logprob": logprob,
    }
