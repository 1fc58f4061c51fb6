"""Demonstrations from a record: what the policy said in the best rollout of each task."""

import json
from collections.abc import Collection, Mapping, Sequence

from truing.record import RunReader
from truing.types.message import Message
from truing.types.sample import SampleFacts
from truing.types.step_table import StepTable
from truing.types.token import Excluded

Answers = Mapping[str, Sequence[Message]]
"""The policy's messages in the order of a program's calls, by task id."""


def best_answers(run: RunReader, min_reward: float, special_tokens: Collection[str]) -> Answers:
    """Return the trained answers of the best recorded rollout of each task; of equal ones the first.

    Args:
        run: of an environment of programs.
        min_reward: rollouts with less are left out.
        special_tokens: of the tokenizer; a rollout whose answers have one as text demonstrates nothing.
    """
    best: dict[str, tuple[float, Sequence[Message]]] = {}
    for line in run.steps():
        for rollout in _rollouts(run.table(line)):
            task, reward = rollout[0][0].task_id, rollout[0][0].reward
            if reward < min_reward or (task in best and reward <= best[task][0]):
                continue
            answers = _answers(rollout)
            texts = json.dumps(answers, ensure_ascii=False)
            if not any(token in texts for token in special_tokens):
                best[task] = reward, answers
    return {task: answers for task, (_, answers) in best.items()}


Part = tuple[SampleFacts, bool]
"""A sample of a rollout, and whether its conversation is one that the recipe trains."""


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
    return [message for _, message in sorted(numbered, key=lambda each: each[0])]
