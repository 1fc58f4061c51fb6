"""Prompts held to ``episode.max_prompt_tokens``: what is too long loses its beginning, and says so."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from truing.chat import Chat, render_prompt
from truing.envs.base import Env
from truing.envs.wrappers import with_changed_tasks
from truing.errors import DataError
from truing.types.message import Message
from truing.types.rollout import Task
from truing.utils.format import with_count


def with_prompt_limit(env: Env, chat: Chat, limit: int | None) -> Env:
    """The environment with prompts of at most so many tokens; itself where there is no limit."""
    return env if limit is None else with_changed_tasks(env, partial(truncate_prompt, chat, limit))


def truncate_prompt(chat: Chat, limit: int, task: Task) -> Task:
    """The task with a prompt of at most ``limit`` tokens; itself where it fits.

    The longest message but the system's loses as few characters at its front as binary search finds. The
    mark that says so counts as a part of it, and ``cut_chars`` of the message says how many were lost.

    Raises:
        DataError: Without that whole message the prompt would still be too long.
    """
    if _tokens(chat, task) <= limit:
        return task
    free = [place for place, message in enumerate(task.messages) if message["role"] != "system"]
    place = max(free, key=lambda index: len(task.messages[index]["content"]), default=0)
    short, last = 0, len(task.messages[place]["content"]) if free else 0
    least = _tokens(chat, _without_front(task, place, last))
    if least > limit:
        raise DataError(
            f"the prompt of task {task.task_id} cannot be cut to episode.max_prompt_tokens",
            got=f"{least} tokens without the whole of its longest message but the system's",
            expected=f"≤ {limit}",
            remedy="raise episode.max_prompt_tokens, or shorten the other messages and the tools",
        )
    while last - short > 1:  # to lose ``last`` characters is enough, to lose ``short`` is not
        middle = (short + last) // 2
        enough = _tokens(chat, _without_front(task, place, middle)) <= limit
        short, last = (short, middle) if enough else (middle, last)
    return _without_front(task, place, last)


def truncation_notes(tasks: Sequence[Task], split: str, limit: int) -> Iterator[str]:
    """A sentence on what the prompts of a split lost, where any did."""
    shorter = [task for task in tasks if any("cut_chars" in message for message in task.messages)]
    if shorter:
        lost: Counter[str] = Counter()
        for message in (message for task in shorter for message in task.messages):
            lost[message["role"]] += message.get("cut_chars", 0)
        told = ", ".join(
            f"{role} messages lost {with_count(number, 'character')}"
            for role, number in lost.items()
            if number
        )
        verb = "is" if len(shorter) == 1 else "are"
        yield (
            f"{len(shorter)} of {with_count(len(tasks), f'{split} prompt')} {verb} cut to {limit} tokens: {told}"
        )


def _tokens(chat: Chat, task: Task) -> int:
    """How long the prompt is as the policy is shown it."""
    return len(render_prompt(chat, task).token_ids)


def _without_front(task: Task, place: int, lost: int) -> Task:
    """The task, one message of which lost so many characters at its front, and says so."""
    if not lost:
        return task
    message = task.messages[place]
    told = f"[… {with_count(lost, 'character')} cut]\n{message['content'][lost:]}"
    shorter: Message = {**message, "content": told, "cut_chars": lost}
    return replace(task, messages=(*task.messages[:place], shorter, *task.messages[place + 1 :]))
