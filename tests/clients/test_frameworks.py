"""An agent of each framework as a program that trains: its calls, its samples, what it must declare."""

import json
import re
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch
from clients.frameworks import ANSWER, FRAMEWORKS, QUESTION, VARIABLES

from truing.algos.flatten import flatten
from truing.chat import Chat
from truing.config import EpisodeConfig
from truing.engines.base import Completion
from truing.envs import make_env
from truing.rewards import GradeResult
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import KnownTurns, demonstrated
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason, Status
from truing.types.token import Origin

CONTEXT = 100_000  # bytes: the prompts of some agents are long


@dataclass
class Sampled:
    """A policy that says what the task demonstrates."""

    chat: Chat

    def running_turns(self):
        return nullcontext(KnownTurns(self._next))

    def _next(self, conversation):
        message = conversation.task.demonstration[conversation.call - 1]
        ids = demonstrated(self.chat, conversation, message).token_ids
        origin = torch.full((len(ids),), Origin.SAMPLED, dtype=torch.uint8)
        return Completion(ids, origin, torch.zeros(len(ids)), None, FinishReason.STOP)


@pytest.fixture
def train(chat, command, tmp_path):
    """Runs an agent against the endpoint, and returns its rollout."""

    def once(framework, override):
        rows = tmp_path / "rows.jsonl"
        rows.write_text(json.dumps({"prompt": QUESTION, "answer": ANSWER}) + "\n")
        keys = {"data": str(rows), "rewards": {"r": {"kind": "exact"}}}
        env = make_env(
            "program",
            {**keys, "command": command(framework.name), "variables": VARIABLES, "override": list(override)},
        )
        asked = {"role": "user", "content": QUESTION}
        task = Task("t", "f", (asked,), demonstration=framework.turns)
        params = SamplingParams(stop_ids=chat.stop_ids, max_new_tokens=1024)
        context = EpisodeContext(chat, env, params, EpisodeConfig(), CONTEXT)
        grade = lambda rollout: GradeResult(1.0, {"r": 1.0})  # noqa: E731
        (group,) = collect(
            [task],
            group_size=1,
            context=context,
            turn_source=Sampled(chat),
            grade=grade,
            key=("k",),
        )
        (rollout,) = group.rollouts
        return rollout

    return once


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda each: each.name)
def test_an_agent_trains(framework, train):
    rollout = train(framework, framework.override)
    assert rollout.status is Status.DONE, rollout.error
    assert rollout.outcome["output"] == {"answer": ANSWER}
    assert "refused" not in rollout.outcome
    first, *others = rollout.outcome["calls"]
    assert len(others) == 2
    assert set(first) <= {"call", "conversation", "overridden"}
    for call in (first, *others):
        assert {*call.get("overridden", ())} == {*framework.override, *framework.noted}
    for number, (call, edit) in enumerate(zip(others, framework.edits or (None, None), strict=True), 1):
        assert call.get("continues") == (None if edit else number)
        assert tuple(call.get("written_differently", ())) == framework.written
        assert (edit in call["restart"]) if edit else "restart" not in call, call["restart"]
    samples = flatten(rollout)
    of_samples = [[turn.call for turn in sample.turns] for sample in samples]
    assert of_samples == ([[1], [2], [3]] if framework.edits else [[1, 2, 3]])
    drawn = torch.cat([turn.token_ids for turn in rollout.turns])
    trained = torch.cat([sample.token_ids[sample.policy_mask] for sample in samples])
    assert torch.equal(trained, drawn), "each token of the policy is trained exactly once"
    assert not any((sample.origin[~sample.policy_mask] == Origin.SAMPLED).any() for sample in samples)
    results = [message["content"] for message in rollout.messages if message["role"] == "tool"]
    assert len(results) == len(framework.results)
    assert all(part in result for part, result in zip(framework.results, results, strict=True))


@pytest.mark.parametrize(
    "framework", [each for each in FRAMEWORKS if each.override], ids=lambda each: each.name
)
def test_what_an_agent_must_declare_is_what_its_refusal_names(framework, train):
    rollout = train(framework, ())
    assert rollout.status is Status.ERROR
    (remedy,) = re.findall(r"override = \[(.+?)\]", rollout.outcome["refused"][0])
    assert {*json.loads(f"[{remedy}]")} == {*framework.override}
