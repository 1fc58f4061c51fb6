"""The rollout loop: from tasks to graded groups of ``group_size`` attempts each.

In lock step all attempts take each turn together, so that a run is reproducible bit for bit. Otherwise an
attempt goes on as soon as its own turn is sampled and its own environment has replied.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from truing.chat import Chat, start_dialogue
from truing.config import EpisodeConfig
from truing.engines.base import Completion
from truing.envs.base import Env, Episode, MultiTurnEnv
from truing.envs.isolation import open_isolated
from truing.errors import DataError, SkipGroup
from truing.rewards import GradeResult
from truing.rollouts.attempt import Attempt
from truing.rollouts.env_workers import CallResult, WorkerPool, run_in_workers
from truing.types.message import Message
from truing.types.rollout import Rollout, RolloutGroup, Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, Status
from truing.utils.phase_clock import phase

GradeFn = Callable[[Rollout], GradeResult]


class RunningTurns(Protocol):
    """Turns that are being sampled."""

    @property
    def unfinished(self) -> int:
        """Attempts whose next turn is not finished."""
        ...

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Begin the next turn of each attempt."""
        ...

    def step(self) -> list[tuple[Attempt, Completion]]:
        """Sample further, and return the turns that finished; it may wait some milliseconds."""
        ...

    def release(self, attempt: Attempt) -> None:
        """Free what is cached for an attempt that has ended."""
        ...


class TurnSource(Protocol):
    """Gives the next turn of each attempt: the policy, or the demonstrations."""

    def running_turns(self) -> AbstractContextManager[RunningTurns]:
        """Return the turns of one collection."""
        ...


@dataclass(frozen=True, eq=False)
class EpisodeContext:
    """What every attempt shares: chat template, environment, sampling parameters and limits."""

    chat: Chat
    env: Env
    sampling_params: SamplingParams
    limits: EpisodeConfig
    context_length: int


def collect(
    tasks: Sequence[Task],
    *,
    group_size: int,
    context: EpisodeContext,
    turn_source: TurnSource,
    grade: GradeFn | None,
    key: tuple[object, ...],
) -> list[RolloutGroup]:
    """Attempt each task ``group_size`` times; ``key`` names the call (seed, stage, step).

    Ids and random numbers depend on a task's index, not its id: if an epoch ends within a step, a task may
    occur twice, and its two groups are independent. Without ``grade`` rewards stay NaN.
    """
    attempts = _start_attempts(tasks, group_size, context, key)
    with turn_source.running_turns() as turns:
        _run_attempts(attempts, turns, context)
    _read_outcomes(attempts, context)
    groups = []
    for first in range(0, len(attempts), group_size):
        members = attempts[first : first + group_size]
        rollouts = [attempt.to_rollout(context.sampling_params, k) for k, attempt in enumerate(members)]
        with phase("reward"):
            with_rewards = rollouts if grade is None else _grade_group(rollouts, grade)
        groups.append(RolloutGroup(members[0].group_id, members[0].task, tuple(with_rewards)))
    return groups


def _start_attempts(
    tasks: Sequence[Task], group_size: int, context: EpisodeContext, key: tuple[object, ...]
) -> list[Attempt]:
    """Return all attempts before their first turn, each with an episode of its own."""
    dialogues = [start_dialogue(context.chat, task) for task in tasks]
    attempts = [
        Attempt(task, "/".join(map(str, (*key, index))), (*key, index, k), *dialogues[index], None)
        for index, task in enumerate(tasks)
        for k in range(group_size)
    ]
    if isinstance(context.env, MultiTurnEnv):
        openings = run_in_workers(
            [_open_call(context.env, attempt.task) for attempt in attempts],
            context.limits.timeout,
            context.limits.workers,
        )
        for attempt, opening in zip(attempts, openings, strict=True):
            attempt.episode = opening.value
            if opening.value is None:
                attempt.end(Status.ERROR, EndedBy.ERROR, f"opening the episode failed: {opening.error}")
    return attempts


def _open_call(env: MultiTurnEnv, task: Task) -> Callable[[], Episode]:
    return lambda: open_isolated(env, task)


def _run_attempts(attempts: Sequence[Attempt], turns: RunningTurns, context: EpisodeContext) -> None:
    """Alternate turns and replies until all attempts have ended; beyond the time limit no turn begins."""
    lock_step = context.limits.lock_step
    deadline = time.monotonic() + (context.limits.time_limit or math.inf)
    index_of = {attempt: index for index, attempt in enumerate(attempts)}
    ready = [attempt for attempt in attempts if attempt.status is None]  # for their next turn
    awaiting_reply: list[Attempt] = []  # their last turn is not yet given to the environment
    replies: WorkerPool[Sequence[Message]] = WorkerPool(context.limits.timeout, context.limits.workers)
    try:
        while ready or turns.unfinished or awaiting_reply or replies.unfinished:
            if ready and not (lock_step and (turns.unfinished or replies.unfinished)):
                _begin_turns(sorted(ready, key=index_of.__getitem__), turns, deadline)
                ready = []
            for attempt, completion in turns.step():
                attempt.add_turn(context.chat, completion)
                awaiting_reply.append(attempt)
            if not (lock_step and turns.unfinished):
                for attempt in sorted(awaiting_reply, key=index_of.__getitem__):
                    if _expects_reply(attempt, turns):
                        replies.submit(index_of[attempt], _reply_call(attempt))
                awaiting_reply = []
            for index, reply in (replies.poll() if turns.unfinished else replies.wait()).items():
                _observe(attempts[index], reply, context)
                ready += [attempts[index]] if _is_unfinished(attempts[index], turns) else []
    finally:  # after an interrupt no further call starts
        replies.shut_down()


def _begin_turns(attempts: Sequence[Attempt], turns: RunningTurns, deadline: float) -> None:
    """Begin the next turn of each attempt; beyond the deadline end them."""
    if time.monotonic() <= deadline:
        turns.add(attempts)
        return
    for attempt in attempts:
        attempt.end(Status.TRUNCATED, EndedBy.TIME)


def _is_unfinished(attempt: Attempt, turns: RunningTurns) -> bool:
    """Whether an attempt has not ended; free what is cached for one that has."""
    if attempt.status is not None:
        turns.release(attempt)
    return attempt.status is None


def _expects_reply(attempt: Attempt, turns: RunningTurns) -> bool:
    """Whether the environment replies to an attempt's last turn; an attempt without an episode is done."""
    if attempt.status is None and attempt.episode is None:
        attempt.end(Status.DONE, EndedBy.ENVIRONMENT)
    return _is_unfinished(attempt, turns)


def _observe(attempt: Attempt, reply: CallResult[Sequence[Message]], context: EpisodeContext) -> None:
    """Append the environment's reply, or its error."""
    if reply.value is None:
        attempt.end(Status.ERROR, EndedBy.ERROR, f"the environment failed to reply: {reply.error}")
        return
    max_prompt_length = context.context_length - context.sampling_params.max_new_tokens
    try:
        attempt.observe(context.chat, reply.value, context.limits, max_prompt_length)
    except DataError as error:  # the template refuses the turn or the reply
        attempt.end(Status.ERROR, EndedBy.ERROR, str(error))


def _reply_call(attempt: Attempt) -> Callable[[], Sequence[Message]]:
    episode, message = attempt.episode, attempt.last_message
    assert episode is not None
    return lambda: [_encodable(reply) for reply in episode.reply(message)]


def _encodable(message: Message) -> Message:
    """Return an environment's message that can be encoded and stored: U+FFFD for each lone surrogate."""
    role, content = message["role"], message["content"]
    if not isinstance(role, str) or not isinstance(content, str):
        raise TypeError(f"a message needs a role and a content of text, got {message!r:.200}")
    return {**message, "content": content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")}


def _outcome_call(attempt: Attempt) -> Callable[[], Mapping[str, Any]]:
    episode = attempt.episode
    assert episode is not None
    return lambda: _recordable(episode.outcome())


def _recordable(outcome: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an outcome if JSON can store it; else raise, so that the attempt fails and not the run."""
    json.dumps(dict(outcome), allow_nan=False)
    return outcome


def _read_outcomes(attempts: Sequence[Attempt], context: EpisodeContext) -> None:
    """Read the outcome of each episode that did not fail."""
    without_error = [
        attempt for attempt in attempts if attempt.episode is not None and attempt.status is not Status.ERROR
    ]
    outcomes = run_in_workers(
        [_outcome_call(attempt) for attempt in without_error], context.limits.timeout, context.limits.workers
    )
    for attempt, outcome in zip(without_error, outcomes, strict=True):
        if outcome.value is None:
            attempt.end(Status.ERROR, EndedBy.ERROR, f"reading the outcome failed: {outcome.error}")
        else:
            attempt.outcome = outcome.value


def _grade_group(rollouts: Sequence[Rollout], grade: GradeFn) -> list[Rollout]:
    """Return the rollouts of a group with their rewards; failed rollouts have none."""
    try:
        return [rollout if rollout.status is Status.ERROR else _grade(rollout, grade) for rollout in rollouts]
    except SkipGroup as reason:
        failure = {"status": Status.ERROR, "ended_by": EndedBy.ERROR, "error": str(reason)}
        return [replace(rollout, **failure) for rollout in rollouts]


def _grade(rollout: Rollout, grade: GradeFn) -> Rollout:
    result = grade(rollout)
    return replace(rollout, reward=result.reward, reward_parts=result.parts, turn_rewards=result.turn_rewards)
