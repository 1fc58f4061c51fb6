"""The rollout loop: from tasks to graded groups of ``group_size`` rollouts each.

In lock step all rollouts take each turn together, so that a run is reproducible bit for bit. Otherwise a
rollout goes on as soon as its own turn is sampled and its own environment has replied.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from truing.chat import start_dialogue
from truing.envs.base import MultiTurnEnv
from truing.envs.program_env import ProgramEnv
from truing.errors import DataError, NoReward, RewardCrash, RewardError, RolloutError, SkipGroup
from truing.rewards import GradeResult, prepare
from truing.rollouts.episode_context import EndedFn, EpisodeContext, RunningTurns, TurnSource, group_id
from truing.rollouts.programs.run import collect_programs
from truing.rollouts.running_rollout import RunningRollout
from truing.rollouts.workers import CallResult, EnvCall, EnvWorkers, run_calls
from truing.rollouts.workers.calls import reply_name
from truing.types.message import Message
from truing.types.rollout import Rollout, RolloutGroup, Task
from truing.types.status import EndedBy, Status
from truing.utils.phase_clock import phase

GradeFn = Callable[[Rollout], GradeResult]


def collect(
    tasks: Sequence[Task],
    *,
    group_size: int,
    context: EpisodeContext,
    turn_source: TurnSource,
    grade: GradeFn | None,
    key: tuple[object, ...],
    indices: Sequence[int] | None = None,
    on_ended: EndedFn | None = None,
) -> list[RolloutGroup]:
    """Roll out each task ``group_size`` times; ``key`` names the call (seed, stage, step).

    Ids and random numbers depend on a task's index, not its id: if an epoch ends within a step, a task may
    occur twice, and its two groups are independent. Without ``grade`` rewards stay NaN. ``indices`` are those
    of the tasks in the call, if ranks share them; by default from 0.
    """
    numbered = dict(zip(indices or range(len(tasks)), tasks, strict=True))
    with context.running_workers() as workers:
        if isinstance(context.env, ProgramEnv):
            rollouts = collect_programs(numbered, group_size, context, turn_source, key, on_ended)
        else:
            rollouts = _collect_episodes(numbered, group_size, context, turn_source, key, workers, on_ended)
        groups = list(_split(rollouts, group_size))
        if grade is not None:
            with phase("reward"):
                prepare(context.env.rewards, [each for each in rollouts if each.status is not Status.ERROR])
                groups = list(workers.map(partial(_grade_group, grade=grade), groups))
    return [RolloutGroup(group[0].group_id, group[0].task, tuple(group)) for group in groups]


def _collect_episodes(
    tasks: Mapping[int, Task],
    group_size: int,
    context: EpisodeContext,
    turn_source: TurnSource,
    key: tuple[object, ...],
    workers: EnvWorkers,
    on_ended: EndedFn | None,
) -> list[Rollout]:
    """Return the rollouts of tasks in episodes of the environment, without rewards, group by group."""
    rollouts = _start_rollouts(tasks, group_size, context, key)
    try:
        _open_episodes(rollouts, context, workers)
        with turn_source.running_turns() as turns:
            _run_rollouts(rollouts, turns, context, workers, on_ended)
        _read_outcomes(rollouts, context, workers)
    finally:
        workers.close_episodes(each.episode for each in rollouts if each.episode is not None)
    return [
        rollout.to_rollout(context.sampling_params, index % group_size)
        for index, rollout in enumerate(rollouts)
    ]


def _split(rollouts: Sequence[Rollout], size: int) -> Iterator[Sequence[Rollout]]:
    """Return the rollouts of each task."""
    return (rollouts[first : first + size] for first in range(0, len(rollouts), size))


def _start_rollouts(
    tasks: Mapping[int, Task], group_size: int, context: EpisodeContext, key: tuple[object, ...]
) -> list[RunningRollout]:
    """Return all rollouts before their first turn."""
    dialogues = {index: start_dialogue(context.chat, task) for index, task in tasks.items()}
    return [
        RunningRollout(
            task, (*key, index, k), *dialogues[index], group_id=group_id(*key, index), episode=None
        )
        for index, task in tasks.items()
        for k in range(group_size)
    ]


def _open_episodes(rollouts: Sequence[RunningRollout], context: EpisodeContext, workers: EnvWorkers) -> None:
    """Open an episode for each rollout, if the environment has episodes."""
    if not isinstance(context.env, MultiTurnEnv):
        return
    for rollout in rollouts:
        rollout.episode = workers.new_episode()
    openings = run_calls(workers, (EnvCall("open", _id(rollout), rollout.task) for rollout in rollouts))
    for rollout, opening in zip(rollouts, openings, strict=True):
        if opening.error:
            rollout.end(Status.ERROR, EndedBy.ERROR, f"opening the episode failed: {opening.error}")


def _id(rollout: RunningRollout) -> int:
    """Return the id of a rollout's episode."""
    assert rollout.episode is not None
    return rollout.episode


def _run_rollouts(
    rollouts: Sequence[RunningRollout],
    turns: RunningTurns[RunningRollout],
    context: EpisodeContext,
    workers: EnvWorkers,
    on_ended: EndedFn | None,
) -> None:
    """Alternate turns and replies until all rollouts have ended; beyond the time limit no turn begins."""
    lock_step = context.limits.lock_step
    deadline = time.monotonic() + (context.limits.time_limit or math.inf)
    index_of = {rollout: index for index, rollout in enumerate(rollouts)}
    ready = [rollout for rollout in rollouts if rollout.status is None]  # for their next turn
    awaiting_reply: list[RunningRollout] = []  # their last turn is not yet given to the environment
    replies = workers.calls()
    try:
        while ready or turns.unfinished or awaiting_reply or replies.unfinished:
            if ready and not (lock_step and (turns.unfinished or replies.unfinished)):
                _begin_turns(sorted(ready, key=index_of.__getitem__), turns, deadline)
                ready = []
            for rollout, completion in turns.step():
                rollout.add_turn(context.chat, completion)
                awaiting_reply.append(rollout)
            if not (lock_step and turns.unfinished):
                for rollout in sorted(awaiting_reply, key=index_of.__getitem__):
                    if _expects_reply(rollout, turns):
                        replies.submit(
                            index_of[rollout], EnvCall("reply", _id(rollout), rollout.last_message)
                        )
                awaiting_reply = []
            for index, reply in (replies.poll() if turns.unfinished else replies.wait()).items():
                _observe(rollouts[index], reply, context)
                ready += [rollouts[index]] if _is_unfinished(rollouts[index], turns) else []
            if on_ended is not None:
                on_ended(sum(rollout.status is not None for rollout in rollouts), len(rollouts))
    finally:  # after an interrupt no further call starts
        replies.shut_down()


def _begin_turns(
    rollouts: Sequence[RunningRollout], turns: RunningTurns[RunningRollout], deadline: float
) -> None:
    """Begin the next turn of each rollout; beyond the deadline end them."""
    if time.monotonic() <= deadline:
        turns.add(rollouts)
        return
    for rollout in rollouts:
        rollout.end(Status.TRUNCATED, EndedBy.TIME)


def _is_unfinished(rollout: RunningRollout, turns: RunningTurns[RunningRollout]) -> bool:
    """Whether a rollout has not ended; free what is cached for one that has."""
    if rollout.status is not None:
        turns.release(rollout)
    return rollout.status is None


def _expects_reply(rollout: RunningRollout, turns: RunningTurns[RunningRollout]) -> bool:
    """Whether the environment replies to a rollout's last turn; a rollout without an episode is done."""
    if rollout.status is None and rollout.episode is None:
        rollout.end(Status.DONE, EndedBy.ENVIRONMENT)
    return _is_unfinished(rollout, turns)


def _observe(rollout: RunningRollout, reply: CallResult[Sequence[Message]], context: EpisodeContext) -> None:
    """Append the environment's reply, or its error."""
    if reply.value is None:
        called = reply_name(rollout.last_message)
        error = f"the environment failed to reply ({called}): {reply.error}"
        rollout.end(Status.ERROR, EndedBy.ERROR, error)
        return
    max_prompt_length = context.context_length - context.sampling_params.max_new_tokens
    try:
        rollout.observe(context.chat, reply.value, context.limits, max_prompt_length)
    except DataError as error:  # the template refuses the turn or the reply
        rollout.end(Status.ERROR, EndedBy.ERROR, str(error))


def _read_outcomes(rollouts: Sequence[RunningRollout], context: EpisodeContext, workers: EnvWorkers) -> None:
    """Read the outcome of each episode that did not fail, and hashes of it and of what it replied."""
    without_error = [
        rollout for rollout in rollouts if rollout.episode is not None and rollout.status is not Status.ERROR
    ]
    chars = context.limits.max_reply_chars
    outcomes = run_calls(workers, (EnvCall("outcome", _id(rollout), chars) for rollout in without_error))
    for rollout, outcome in zip(without_error, outcomes, strict=True):
        if outcome.value is None:
            rollout.end(Status.ERROR, EndedBy.ERROR, f"reading the outcome failed: {outcome.error}")
        else:
            rollout.outcome, rollout.reply_hashes = outcome.value


def _grade_group(rollouts: Sequence[Rollout], grade: GradeFn) -> list[Rollout]:
    """Return the rollouts of a group with their rewards; failed rollouts have none."""
    try:
        return [rollout if rollout.status is Status.ERROR else _grade(rollout, grade) for rollout in rollouts]
    except SkipGroup as reason:
        failure = {"status": Status.ERROR, "ended_by": EndedBy.ERROR, "error": str(reason)}
        return [replace(rollout, **failure) for rollout in rollouts]


def _grade(rollout: Rollout, grade: GradeFn) -> Rollout:
    try:
        result = grade(rollout)
    except (RewardCrash, NoReward) as error:  # the run goes on without the rollout
        return replace(rollout, status=Status.ERROR, ended_by=EndedBy.ERROR, error=str(error))
    except RewardError as error:
        if "crash" not in rollout.outcome:
            raise
        why = str(_ungraded(rollout, error))  # the program left less than a reward may expect
        return replace(rollout, status=Status.ERROR, ended_by=EndedBy.ERROR, error=why)
    return replace(rollout, reward=result.reward, reward_parts=result.parts, turn_rewards=result.turn_rewards)


def _ungraded(rollout: Rollout, error: RewardError) -> RolloutError:
    """Return the error of a rollout whose program ended at a refused call, if a reward cannot judge it."""
    refused, how = rollout.outcome["refused"][0], rollout.outcome["crash"]
    return RolloutError(
        f"a reward cannot grade the program of task {rollout.task.task_id!r}, which {how} at a refused call",
        got=f"{error}\nthe first refusal: {refused}",
        expected="a number for what the program left until then",
        remedy="catch the refusal and print the result so far, or let the reward grade an output of None",
    )
