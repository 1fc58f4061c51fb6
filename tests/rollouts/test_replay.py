"""The trainer scores what the sampler computed, with every sampling parameter in use."""

from dataclasses import dataclass, field

import pytest
import torch

from truing.algos.flatten import flatten
from truing.config import EpisodeConfig
from truing.engines.local.engine import LocalEngine
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.rewards import GradeResult
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import PolicyTurns
from truing.types.message import ToolCall, ToolSpec, tool_message
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy
from truing.types.token import Origin

SAMPLING = {
    "temperature": 1.2,
    "top_p": 0.95,
    "top_k": 200,
    "min_p": 0.001,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.2,
    "repetition_penalty": 1.1,
    "min_new_tokens": 6,
    "max_new_tokens": 14,
}
"""Sampling parameters, none at its default."""

LOOK = ToolSpec("look", "Look a word up.", {"type": "object", "properties": {"word": {"type": "string"}}})


class Answering:
    """An episode that replies twice to any message."""

    def __init__(self):
        self.turns = 0

    def reply(self, message):
        self.turns += 1
        return [] if self.turns == 3 else [tool_message(ToolCall("look", {}), 0, f"answer {self.turns} 🙂")]

    def outcome(self):
        return {"turns": self.turns}


@dataclass
class ThreeTurns:
    """An environment of three turns."""

    rewards: dict = field(default_factory=dict)
    notes: tuple = ()

    def tasks(self, split):
        return []

    def open(self, task):
        return Answering()


@pytest.fixture
def rows(tiny, chat):
    """The samples of 3 tasks × 4 rollouts of up to three turns, some with a forced prefix."""
    sampling_params = SamplingParams(stop_ids=tiny.stop_ids, **SAMPLING)
    tasks = [
        Task(str(i), "f", ({"role": "user", "content": "hello " * (i + 1)},), tools=(LOOK,)) for i in range(3)
    ]
    sampler = LocalEngine(tiny.model, context_length=tiny.context_length)
    with torch.no_grad():  # a model that likes to stop, or no random turn of 14 bytes ever would
        tiny.model.get_output_embeddings().weight[tiny.stop_ids[0]] *= 30
    groups = collect(
        tasks,
        group_size=4,
        context=EpisodeContext(chat, ThreeTurns(), sampling_params, EpisodeConfig(), tiny.context_length),
        turn_source=PolicyTurns(sampler, sampling_params, torch.tensor(list(b"<tool_call>")), force_rate=0.5),
        grade=lambda rollout: GradeResult(0.0, {}),
        key=("test",),
    )
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert {rollout.ended_by for rollout in rollouts} <= {EndedBy.ENVIRONMENT, EndedBy.LENGTH}
    return [sample for rollout in rollouts for sample in flatten(rollout)]


def test_ratios_are_one_and_every_trained_token_was_sampled(tiny, rows):
    assert any(len(row.turns) > 1 for row in rows)
    assert any((row.origin == Origin.FORCED).any() for row in rows)
    assert any((row.origin == Origin.TOOL).any() for row in rows)
    batch = collate(rows)
    scores = score(tiny.model, batch, batch.policy_mask)
    difference = (scores.logprob - batch.sampler_logprob)[batch.policy_mask].abs().max()
    assert difference < 2e-5
    for row in rows:
        assert torch.equal(row.policy_mask, row.origin == Origin.SAMPLED)
        assert torch.equal(row.policy_mask, ~row.sampler_logprob.isnan())


def test_stop_ids_are_banned_in_each_turn_until_its_own_minimum(tiny, rows):
    ended = [row.token_ids[turn.end - 1].item() in tiny.stop_ids for row in rows for turn in row.turns]
    lengths = [turn.end - turn.start for row in rows for turn in row.turns]
    assert any(ended)
    assert min(length for length, stopped in zip(lengths, ended, strict=True) if stopped) > 6


def test_penalties_count_the_turn_alone(tiny, chat, rows):
    """Scored with the prompt's or an earlier turn's ids as history, the log-probabilities differ."""
    row = next(row for row in rows if len(row.turns) > 1)
    batch = collate([row])
    right = score(tiny.model, batch, batch.policy_mask).logprob[0]
    first, last = row.turns[0], row.turns[-1]
    joined = type(row)(**vars(row) | {"turns": (type(first)(**vars(first) | {"end": last.end}),)})
    wrong = score(tiny.model, collate([joined]), batch.policy_mask).logprob[0]
    assert torch.allclose(right[first.start : first.end], wrong[first.start : first.end], atol=1e-5)
    assert not torch.allclose(right[last.start : last.end], wrong[last.start : last.end], atol=1e-2)
