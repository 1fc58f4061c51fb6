"""Runs the programs of a collection, and samples the answers to their calls."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from truing.endpoint.calls import CallRefused
from truing.envs.program_env import Access, ProgramEnv
from truing.errors import ProgramError
from truing.rollouts.call_queue import CallQueue, PendingCall
from truing.rollouts.endpoint import ProgramEndpoint
from truing.rollouts.episode_context import EndedFn, EpisodeContext, RunningTurns, TurnSource, group_id
from truing.rollouts.programs.conversation import ProgramConversation
from truing.rollouts.programs.finished import finished_rollout
from truing.rollouts.programs.rollout import ProgramRollout
from truing.types.rollout import Rollout, Task
from truing.types.status import EndedBy
from truing.utils.deep_copy import deep_copy

IDLE_SECONDS = 0.05
"""How long the loop waits for a call while nothing is sampled."""


def collect_programs(
    tasks: Mapping[int, Task],
    group_size: int,
    context: EpisodeContext,
    turn_source: TurnSource,
    key: tuple[object, ...],
    on_ended: EndedFn | None,
) -> list[Rollout]:
    """Return the rollouts of tasks as programs, without rewards, group by group.

    Args:
        tasks: by their index in the collection.
        group_size: rollouts of each.
        context: what rollouts share; its environment has programs.
        turn_source: of the answers to their calls.
        key: of the collection.
        on_ended: called while programs run.
    """
    env = context.env
    assert isinstance(env, ProgramEnv)
    env.begin_collection(context.kept)
    with context.running_endpoint() as endpoint, turn_source.running_turns() as turns:
        calls = endpoint.calls
        rollouts = [
            ProgramRollout(
                task, group_id(*key, index), k, (*key, index, k), context, env.calls, calls.is_lost
            )
            for index, task in tasks.items()
            for k in range(group_size)
        ]
        _answer_calls(rollouts, turns, endpoint, env, context.limits.time_limit, on_ended)
        endpoint.server.wait_settled()
        return [finished_rollout(rollout, calls) for rollout in rollouts]


def _answer_calls(
    rollouts: Sequence[ProgramRollout],
    turns: RunningTurns[ProgramConversation],
    endpoint: ProgramEndpoint,
    env: ProgramEnv,
    time_limit: float,
    on_ended: EndedFn | None,
) -> None:
    """Run a program for each rollout, and answer its calls, until all programs have ended.

    No program waits for another: a call is sampled as soon as it comes, with whatever is being sampled.
    """
    by_name = {rollout.name: rollout for rollout in rollouts}
    owners: dict[ProgramConversation, ProgramRollout] = {}
    deadline = time.monotonic() + (time_limit or math.inf)
    with endpoint.calls.accepting(list(by_name)) as keys, _running(rollouts, env, endpoint, keys) as running:
        while running:
            pending = endpoint.calls.take(0 if turns.unfinished else IDLE_SECONDS)
            begun = _begin(pending, by_name, deadline)
            owners |= begun
            if begun:
                turns.add(list(begun))
            for conversation, completion in turns.step():
                owners[conversation].add_answer(conversation, completion)
            for ended in [future for future in running if future.done()]:
                rollout = running.pop(ended)
                endpoint.calls.end(rollout.name)
                _end(rollout, ended)
                for conversation in rollout.conversations:
                    turns.release(conversation)
            endpoint.server.raise_failure()
            if on_ended is not None:
                on_ended(len(rollouts) - len(running), len(rollouts))


@contextmanager
def _running(
    rollouts: Sequence[ProgramRollout], env: ProgramEnv, endpoint: ProgramEndpoint, keys: Mapping[str, str]
) -> Iterator[dict["Future[Mapping[str, Any]]", ProgramRollout]]:
    """Start the programs, ``at_once`` of them at a time, and yield their outcomes; at the end none runs."""
    with ThreadPoolExecutor(env.at_once, "program") as pool:
        running: dict[Future[Mapping[str, Any]], ProgramRollout] = {}
        try:
            for rollout in rollouts:
                task = deep_copy(rollout.task, f"task {rollout.task.task_id}")
                access = Access(endpoint.server.url, keys[rollout.name])
                future = pool.submit(_run, env, endpoint.calls, task, access, rollout.name)
                future.add_done_callback(lambda _: endpoint.calls.wake())
                running[future] = rollout
            yield running
        finally:
            if running:  # an error or an interrupt
                pool.shutdown(wait=False, cancel_futures=True)
                env.stop()
                for rollout in running.values():  # programs that no one can stop wait for their answers
                    endpoint.calls.end(rollout.name)


def _run(env: ProgramEnv, calls: CallQueue, task: Task, access: Access, name: str) -> Mapping[str, Any]:
    """Run a program; what it left is noted here too, where the doctor finds it whatever becomes of it."""
    try:
        outcome = env.run(task, access, name)
        calls.note_outcome(access.key, outcome)
        return outcome
    except ProgramError:
        calls.note_crash(name)
        raise


def _begin(
    pending: Sequence[PendingCall], by_name: Mapping[str, ProgramRollout], deadline: float
) -> dict[ProgramConversation, ProgramRollout]:
    """Return the conversations whose next turn answers the calls, with their rollouts."""
    begun: dict[ProgramConversation, ProgramRollout] = {}
    for each in pending:
        rollout = by_name[each.name]
        if time.monotonic() > deadline:
            rollout.limit = EndedBy.TIME
            each.refuse(CallRefused(400, "episode.time_limit has passed: no further turn begins"))
        elif (conversation := rollout.begin(each)) is not None:
            begun[conversation] = rollout
    return begun


def _end(rollout: ProgramRollout, ended: "Future[Mapping[str, Any]]") -> None:
    """Note the outcome of a program, or why it has none."""
    try:
        rollout.outcome = ended.result()
    except ProgramError as error:
        rollout.error = str(error)
