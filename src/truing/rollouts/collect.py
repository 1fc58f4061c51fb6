"""Tasks to graded groups: each task is attempted ``group_size`` times, and every attempt is graded.

All attempts are in flight together: at each turn one call of the sampler draws for those that go on.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
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
from truing.rollouts.env_workers import run_in_workers
from truing.types.message import Message
from truing.types.rollout import Rollout, RolloutGroup, Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, Status
from truing.utils.phase_clock import phase

GradeFn = Callable[[Rollout], GradeResult]


class TurnSource(Protocol):
    """Says the next turn of each attempt: a sampler, or a script of demonstrations."""

    version: int
    weight_digest: str

    def next_turns(self, attempts: Sequence[Attempt]) -> list[Completion]:
        """One turn for each seat, in their order."""
        ...


@dataclass(frozen=True, eq=False)
class EpisodeContext:
    """Where attempts take place: how the model is spoken to, the worlds, and their limits."""

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
    """Attempt each task ``group_size`` times; ``key`` names the occasion (seed, stage, step).

    Ids and random numbers go by a task's place and not by its id: where an epoch ends within a step, one
    task may be there twice, and its two groups are as apart as any. Without ``grade`` rewards stay NaN.
    """
    seats = _start_attempts(tasks, group_size, context, key)
    started = time.monotonic()
    while live := [seat for seat in seats if seat.status is None]:
        if context.limits.time_limit and time.monotonic() - started > context.limits.time_limit:
            for seat in live:
                seat.end(Status.TRUNCATED, EndedBy.TIME)
            break
        for seat, drawn in zip(live, turn_source.next_turns(live), strict=True):
            seat.add_turn(context.chat, drawn, turn_source.version, turn_source.weight_digest)
        _observe([seat for seat in live if seat.status is None], context)
    _read_outcomes(seats, context)
    groups = []
    for first in range(0, len(seats), group_size):
        attempts = seats[first : first + group_size]
        rollouts = [seat.to_rollout(context.sampling_params, k) for k, seat in enumerate(attempts)]
        with phase("reward"):
            graded = rollouts if grade is None else _graded(rollouts, grade)
        groups.append(RolloutGroup(attempts[0].group_id, attempts[0].task, tuple(graded)))
    return groups


def _start_attempts(
    tasks: Sequence[Task], group_size: int, context: EpisodeContext, key: tuple[object, ...]
) -> list[Attempt]:
    """All attempts before their first turn, each with a fresh world."""
    begun = [start_dialogue(context.chat, task) for task in tasks]
    seats = [
        Attempt(task, "/".join(map(str, (*key, place))), (*key, place, k), *begun[place], None)
        for place, task in enumerate(tasks)
        for k in range(group_size)
    ]
    if isinstance(context.env, MultiTurnEnv):
        opened = run_in_workers(
            [_open_call(context.env, seat.task) for seat in seats], context.limits.timeout
        )
        for seat, world in zip(seats, opened, strict=True):
            seat.episode = world.value
            if world.value is None:
                seat.end(Status.ERROR, EndedBy.ERROR, f"opening the episode failed: {world.error}")
    return seats


def _open_call(env: MultiTurnEnv, task: Task) -> Callable[[], Episode]:
    return lambda: open_isolated(env, task)


def _observe(attempts: Sequence[Attempt], context: EpisodeContext) -> None:
    """Let each world answer what was said to it, all at one time."""
    for seat in attempts:
        if seat.episode is None:
            seat.end(Status.DONE, EndedBy.ENVIRONMENT)
    heard = [seat for seat in attempts if seat.episode is not None]
    replies = run_in_workers([_reply_call(seat) for seat in heard], context.limits.timeout)
    room = context.context_length - context.sampling_params.max_new_tokens
    for seat, reply in zip(heard, replies, strict=True):
        if reply.value is None:
            seat.end(Status.ERROR, EndedBy.ERROR, f"the world failed to answer: {reply.error}")
        else:
            try:
                seat.observe(context.chat, reply.value, context.limits, room)
            except DataError as error:  # the template refuses what was said, or the answer
                seat.end(Status.ERROR, EndedBy.ERROR, str(error))


def _reply_call(attempt: Attempt) -> Callable[[], Sequence[Message]]:
    episode, said = attempt.episode, attempt.last_message
    assert episode is not None
    return lambda: [_encodable(message) for message in episode.reply(said)]


def _encodable(message: Message) -> Message:
    """A world's message as it can be encoded and stored: U+FFFD for each half of a character."""
    role, content = message["role"], message["content"]
    if not isinstance(role, str) or not isinstance(content, str):
        raise TypeError(f"a message needs a role and a content of text, got {message!r:.200}")
    return {**message, "content": content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")}


def _outcome_call(attempt: Attempt) -> Callable[[], Mapping[str, Any]]:
    episode = attempt.episode
    assert episode is not None
    return lambda: _recordable(episode.outcome())


def _recordable(outcome: Mapping[str, Any]) -> Mapping[str, Any]:
    """An outcome that JSON can hold; else the attempt fails, and not the run that would record it."""
    json.dumps(dict(outcome), allow_nan=False)
    return outcome


def _read_outcomes(attempts: Sequence[Attempt], context: EpisodeContext) -> None:
    """Ask each world that did not fail what became of it."""
    whole = [seat for seat in attempts if seat.episode is not None and seat.status is not Status.ERROR]
    outcomes = run_in_workers([_outcome_call(seat) for seat in whole], context.limits.timeout)
    for seat, outcome in zip(whole, outcomes, strict=True):
        if outcome.value is None:
            seat.end(
                Status.ERROR, EndedBy.ERROR, f"the world failed to say what became of it: {outcome.error}"
            )
        else:
            seat.outcome = outcome.value


def _graded(rollouts: Sequence[Rollout], grade: GradeFn) -> list[Rollout]:
    """The rollouts of a group with their rewards; what failed has none."""
    try:
        return [rollout if rollout.status is Status.ERROR else _grade(rollout, grade) for rollout in rollouts]
    except SkipGroup as reason:
        failed = {"status": Status.ERROR, "ended_by": EndedBy.ERROR, "error": str(reason)}
        return [replace(rollout, **failed) for rollout in rollouts]


def _grade(rollout: Rollout, grade: GradeFn) -> Rollout:
    graded = grade(rollout)
    return replace(rollout, reward=graded.reward, reward_parts=graded.parts, turn_rewards=graded.turn_rewards)
