"""The plays that checks look at: each task is played with its demonstration, with nothing, with another's."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from truing.chat import Chat, encode_reply
from truing.engines.base import Completion
from truing.errors import DataError, RewardError, SkipGroup, TruingError
from truing.rewards import GradeResult, grade
from truing.rollouts.attempt import Attempt
from truing.rollouts.collect import EpisodeContext, TurnSource, collect
from truing.rollouts.flatten import flatten
from truing.rollouts.turn_sources import DemonstrationTurns
from truing.types.message import AssistantMessage
from truing.types.rollout import Rollout, Task
from truing.types.sample import Sample
from truing.types.sampling_params import RAW
from truing.types.status import FinishReason, Status
from truing.types.token import Origin


@dataclass(frozen=True, eq=False)
class TrialEpisode:
    """A task that was played twice, each time in a world of its own, and its first attempt graded twice."""

    task: Task
    rollouts: tuple[Rollout, ...]  # none where it could not be played
    grades: tuple[GradeResult, ...]  # none where it failed
    error: TruingError | None = None  # why it could not be played or graded

    @property
    def rollout(self) -> Rollout:
        """The first attempt."""
        return self.rollouts[0]

    @property
    def reward(self) -> float:
        """What the first attempt earned."""
        return self.grades[0].reward


@dataclass(frozen=True, eq=False)
class TrialRun:
    """Tasks, and their plays by what was said."""

    context: EpisodeContext
    tasks: Sequence[Task]
    demonstrated: Sequence[TrialEpisode]  # the task's own demonstration; tasks without one are left out
    empty: Sequence[TrialEpisode]  # nothing but a stop token
    shuffled: Sequence[TrialEpisode]  # the demonstration of another task of the family

    @property
    def episodes(self) -> tuple[TrialEpisode, ...]:
        """All of them."""
        return (*self.demonstrated, *self.empty, *self.shuffled)

    @property
    def prompted(self) -> list[TrialEpisode]:
        """A play of each task whose prompt was shown."""
        return [play for play in self.empty if play.rollouts and play.rollout.turns]


@dataclass(frozen=True, eq=False)
class FixedTurns:
    """Says some turns whatever the world answers, and then nothing more."""

    chat: Chat
    turns: Sequence[AssistantMessage]
    version: int = 0
    weight_digest: str = ""

    def next_turns(self, attempts: Sequence[Attempt]) -> list[Completion]:
        """The next turn of each seat."""
        return [self._next(seat) for seat in attempts]

    def _next(self, attempt: Attempt) -> Completion:
        ids = torch.tensor(self.chat.stop_ids[:1])
        if len(attempt.turns) < len(self.turns):
            said = self.turns[len(attempt.turns)]
            ids = encode_reply(self.chat, attempt.dialogue.messages, said, attempt.dialogue.tools)
        origin = torch.full((len(ids),), Origin.DEMO, dtype=torch.uint8)
        return Completion(ids, origin, torch.full((len(ids),), torch.nan), None, FinishReason.DEMO)


def run_trial(context: EpisodeContext, tasks: Sequence[Task]) -> TrialRun:
    """Play every task. Nothing is sampled, and no context is too short: that is a check of its own."""
    stage = replace(context, sampling_params=RAW, context_length=sys.maxsize)
    told = [task for task in tasks if task.demonstration is not None]
    return TrialRun(
        context,
        tasks,
        demonstrated=[_play(task, DemonstrationTurns(context.chat), stage) for task in told],
        empty=[_play(task, FixedTurns(context.chat, ()), stage) for task in tasks],
        shuffled=[
            _play(task, FixedTurns(context.chat, demonstration_turns(other)), stage)
            for task, other in _with_other_answers(told)
        ],
    )


def demonstration_turns(task: Task) -> tuple[AssistantMessage, ...]:
    """What a task's demonstration says; nothing where it has none."""
    said = task.demonstration
    return (AssistantMessage(said),) if isinstance(said, str) else said or ()


def trial_samples(
    plays: Sequence[TrialEpisode], *, first_only: bool = False
) -> Iterator[tuple[TrialEpisode, Sample]]:
    """The samples of each play that got as far as a turn."""
    for play in plays:
        if play.rollouts and play.rollout.messages:
            made = flatten(play.rollout)
            yield from ((play, sample) for sample in (made[:1] if first_only else made))


def _play(task: Task, turn_source: TurnSource, context: EpisodeContext) -> TrialEpisode:
    """Play one task."""
    try:
        (group,) = collect(
            [task], group_size=2, context=context, turn_source=turn_source, grade=None, key=("check",)
        )
    except DataError as error:
        return TrialEpisode(task, (), (), error)
    if any(rollout.status is Status.ERROR for rollout in group.rollouts):
        return TrialEpisode(task, group.rollouts, ())
    try:
        return TrialEpisode(
            task, group.rollouts, tuple(grade(group.rollouts[0], context.env.rewards) for _ in range(2))
        )
    except (RewardError, SkipGroup) as error:
        return TrialEpisode(task, group.rollouts, (), error)


def _with_other_answers(tasks: Sequence[Task]) -> Iterator[tuple[Task, Task]]:
    """Each task with the next of its family that has another answer, and says so otherwise."""
    families: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        families[task.family].append(task)
    for members in families.values():
        for i, task in enumerate(members):
            others = (*members[i + 1 :], *members[:i])
            other = next((other for other in others if _differ(task, other)), None)
            if other is not None:
                yield task, other


def _differ(task: Task, other: Task) -> bool:
    """Whether what is right for one task should be wrong for the other; an answer of None says nothing."""
    same_answer = task.answer is not None and task.answer == other.answer
    return demonstration_turns(task) != demonstration_turns(other) and not same_answer
