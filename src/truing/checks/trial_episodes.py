"""Trial episodes for the checks: each task runs with its demonstration, an empty turn, and another task's."""

import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch

from truing.algos.flatten import flatten, is_other_conversation
from truing.chat import Chat
from truing.engines.base import Completion
from truing.envs.program_env import ProgramEnv
from truing.errors import DataError, RewardError, SkipGroup, TruingError
from truing.rewards import GradeResult
from truing.rollouts.collect import collect
from truing.rollouts.conversation import Conversation
from truing.rollouts.episode_context import EpisodeContext, TurnSource
from truing.rollouts.turn_sources import DemonstrationTurns, KnownTurns, demonstrated, demonstrated_ids
from truing.rollouts.workers import EnvWorkers
from truing.types.message import AssistantMessage
from truing.types.rollout import DemonstratedText, Rollout, Task
from truing.types.sample import Sample
from truing.types.sampling_params import RAW
from truing.types.status import Status


@dataclass(frozen=True, eq=False)
class TrialEpisode:
    """Two rollouts of a task with the same turns; the first is graded twice."""

    task: Task
    rollouts: tuple[Rollout, ...]  # none if it could not run
    grades: tuple[GradeResult, ...]  # none if it failed
    error: TruingError | None = None  # why it could not run or be graded
    seconds: float = math.nan  # both rollouts took together

    @property
    def rollout(self) -> Rollout:
        """The first rollout."""
        return self.rollouts[0]

    @property
    def reward(self) -> float:
        """The reward of the first rollout."""
        return self.grades[0].reward


@dataclass(frozen=True, eq=False)
class TrialRun:
    """Tasks and their trial episodes, by the source of the turns."""

    context: EpisodeContext
    workers: EnvWorkers
    tasks: Sequence[Task]
    demonstrated: Sequence[TrialEpisode]  # the task's own demonstration; without tasks that have none
    empty: Sequence[TrialEpisode]  # nothing but a stop token
    shuffled: Sequence[TrialEpisode]  # the demonstration of another task of the family
    shaping: Sequence[str]  # parts of the reward that are not judged

    @property
    def episodes(self) -> tuple[TrialEpisode, ...]:
        """All trial episodes."""
        return (*self.demonstrated, *self.empty, *self.shuffled)

    @property
    def prompted(self) -> list[TrialEpisode]:
        """One episode of each task whose prompt was rendered."""
        return [
            each for each in self.empty if each.rollouts and each.rollout.turns and not each.rollout.crashed
        ]


@dataclass(frozen=True, eq=False)
class FixedTurns:
    """Gives fixed turns, then empty ones, for any replies."""

    chat: Chat
    turns: Sequence[AssistantMessage]

    def running_turns(self) -> AbstractContextManager[KnownTurns]:
        """Return the turns of one collection."""
        return nullcontext(KnownTurns(self._next))

    def _next(self, conversation: Conversation) -> Completion:
        index = conversation.demonstrated_turn
        if index is not None and index < len(self.turns):
            return demonstrated(self.chat, conversation, self.turns[index])
        return demonstrated_ids(torch.tensor(self.chat.stop_ids[:1]))


def run_trial(
    context: EpisodeContext, workers: EnvWorkers, tasks: Sequence[Task], shaping: Sequence[str] = ()
) -> TrialRun:
    """Run every task, of programs one of each family, whose start may take seconds.

    Nothing is sampled, and the context is unlimited: other checks test its length.
    """
    trial_context = replace(context, sampling_params=RAW, context_length=sys.maxsize, workers=workers)
    if isinstance(context.env, ProgramEnv):
        by_family = {task.family: task for task in reversed(tasks)}
        tasks = [task for task in tasks if by_family[task.family] is task]
        # programs may ask for the sampling that the recipe declares
        trial_context = replace(trial_context, sampling_params=context.sampling_params)
    with_demonstration = [task for task in tasks if task.demonstration is not None]
    return TrialRun(
        context,
        workers,
        tasks,
        demonstrated=[
            _run_twice(task, DemonstrationTurns(context.chat), trial_context) for task in with_demonstration
        ],
        empty=[_run_twice(task, FixedTurns(context.chat, ()), trial_context) for task in tasks],
        shuffled=[
            _run_twice(task, FixedTurns(context.chat, demonstration_turns(donor)), trial_context)
            for task, donor in _with_other_answers(with_demonstration)
        ],
        shaping=shaping,
    )


def demonstration_turns(task: Task) -> tuple[AssistantMessage, ...]:
    """Return the turns of a task's demonstration; none if it has none, or is a whole text."""
    demonstration = task.demonstration
    if isinstance(demonstration, DemonstratedText):
        return ()
    return (AssistantMessage(demonstration),) if isinstance(demonstration, str) else demonstration or ()


def trial_samples(
    episodes: Sequence[TrialEpisode], *, first_only: bool = False
) -> Iterator[tuple[TrialEpisode, Sample]]:
    """Yield the samples of each episode that has a turn, without conversations that are not to be trained."""
    for episode in episodes:
        if episode.rollouts and episode.rollout.messages:
            samples = [each for each in flatten(episode.rollout) if not is_other_conversation(each)]
            yield from ((episode, sample) for sample in (samples[:1] if first_only else samples))


def _run_twice(task: Task, turn_source: TurnSource, context: EpisodeContext) -> TrialEpisode:
    """Run one task twice and grade the first rollout twice."""
    started = time.monotonic()
    try:
        (group,) = collect(
            [task], group_size=2, context=context, turn_source=turn_source, grade=None, key=("check",)
        )
    except DataError as error:
        return TrialEpisode(task, (), (), error)
    seconds = time.monotonic() - started
    if not context.env.rewards or any(rollout.status is Status.ERROR for rollout in group.rollouts):
        return TrialEpisode(task, group.rollouts, (), seconds=seconds)
    try:
        with context.running_workers() as workers:
            grades = tuple(workers.grade(group.rollouts[0]) for _ in range(2))
        return TrialEpisode(task, group.rollouts, grades, seconds=seconds)
    except (RewardError, SkipGroup) as error:
        return TrialEpisode(task, group.rollouts, (), error)


def _with_other_answers(tasks: Sequence[Task]) -> Iterator[tuple[Task, Task]]:
    """Yield each task with the next of its family whose answer and demonstration differ."""
    families: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        families[task.family].append(task)
    for members in families.values():
        for i, task in enumerate(members):
            candidates = (*members[i + 1 :], *members[:i])
            candidate = next(
                (candidate for candidate in candidates if _have_different_answers(task, candidate)), None
            )
            if candidate is not None:
                yield task, candidate


def _have_different_answers(task: Task, other: Task) -> bool:
    """Whether the right turns of one task should be wrong for the other; an answer of None is ignored."""
    same_answer = task.answer is not None and task.answer == other.answer
    return demonstration_turns(task) != demonstration_turns(other) and not same_answer
