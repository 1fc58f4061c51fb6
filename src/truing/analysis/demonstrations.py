"""Demonstrations from a record: what the policy said in the best rollout of each task."""

import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from truing.record import RunReader
from truing.types.message import Message, call_id
from truing.types.sample import SampleFacts
from truing.types.step_table import StepTable
from truing.types.token import Excluded

Answers = Mapping[str, Sequence[Message]]
"""The policy's messages in the order of a program's calls, by task id."""

UNDECODED = "\ufffd"
"""What a decoder writes for bytes that are no text: no tokenizer gives them back."""


def best_answers(run: RunReader, min_reward: float, special_tokens: Collection[str]) -> Answers:
    """Return the trained answers of the best recorded rollout of each task; of equal ones the first.

    Args:
        run: of an environment of programs.
        min_reward: rollouts with less are left out.
        special_tokens: of the tokenizer; a rollout whose answers have one as text, or bytes that are no text,
            demonstrates nothing.
    """
    best: dict[str, tuple[float, Sequence[Message]]] = {}
    for rollout in _graded_rollouts(run):
        task, reward = rollout[0][0].task_id, rollout[0][0].reward
        if reward < min_reward or (task in best and reward <= best[task][0]):
            continue
        answers = _answers(rollout)
        texts = json.dumps(answers, ensure_ascii=False)
        if not any(token in texts for token in (UNDECODED, *special_tokens)):
            best[task] = reward, answers
    return {task: answers for task, (_, answers) in best.items()}


def highest_reward(run: RunReader) -> float | None:
    """Return the highest reward of a recorded rollout of a program; None if none has a reward."""
    return max((rollout[0][0].reward for rollout in _graded_rollouts(run)), default=None)


Part = tuple[SampleFacts, bool]
"""A sample of a rollout, and whether its conversation is one that the recipe trains."""


def _graded_rollouts(run: RunReader) -> Iterator[Sequence[Part]]:
    """Yield the rollouts with a reward; demonstrations have none."""
    for line in run.steps():
        yield from (each for each in _rollouts(run.table(line)) if math.isfinite(each[0][0].reward))


def _rollouts(table: StepTable) -> list[list[Part]]:
    """Return the samples of each rollout that a program made."""
    rollouts: dict[str, list[Part]] = {}
    for index, sample in enumerate(table.samples):
        if any(turn.call for turn in sample.turns):
            excluded = table.streams["excluded"][table.part(index)]
            trained = not bool((excluded == Excluded.OTHER_CONVERSATION).any())
            rollouts.setdefault(sample.rollout_id, []).append((sample, trained))
    return list(rollouts.values())


def _answers(rollout: Sequence[Part]) -> list[Message]:
    """Return the policy's messages of the conversations that are trained, by the number of their call."""
    numbered: list[tuple[int, Message]] = []
    for sample, trained in rollout:
        said = [message for message in sample.messages if message["role"] == "assistant"]
        own = said[len(said) - len(sample.turns) :]  # those before are context of an edited history
        numbered += [(turn.call, message) for turn, message in zip(sample.turns, own, strict=True) if trained]
    return _with_own_ids([message for _, message in sorted(numbered, key=lambda each: each[0])])


def _with_own_ids(messages: Sequence[Message]) -> list[Message]:
    """Return messages in which no two calls have the same id: Truing counts ids anew in each turn."""
    seen = set[str]()
    unused = (name for name in map(call_id, itertools.count()) if name not in seen)
    changed: list[Message] = []
    for message in messages:
        calls: list[dict[str, Any]] = []
        for call in message.get("tool_calls", ()):
            name = call.get("id")
            calls.append({**call, "id": next(unused) if name is None or name in seen else name})
            seen.add(calls[-1]["id"])
        changed.append({**message, "tool_calls": calls} if calls else message)
    return changed
