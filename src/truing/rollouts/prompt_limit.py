"""Truncation of prompts to ``episode.max_prompt_tokens``: the longest message loses its beginning."""

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
    """Return the environment with prompts of at most ``limit`` tokens; None means no limit."""
    return env if limit is None else with_changed_tasks(env, partial(truncate_prompt, chat, limit))


def truncate_prompt(chat: Chat, limit: int, task: Task) -> Task:
    """Return the task with a prompt of at most ``limit`` tokens; unchanged if it fits.

    The longest message other than the system's loses as few leading characters as binary search finds. A mark
    replaces them and counts as part of the message; ``cut_chars`` of the message is their number.

    Raises:
        DataError: The prompt is too long even without that message.
    """
    if _tokens(chat, task) <= limit:
        return task
    candidates = [index for index, message in enumerate(task.messages) if message["role"] != "system"]
    longest = max(candidates, key=lambda index: len(task.messages[index]["content"]), default=0)
    too_few, enough = 0, len(task.messages[longest]["content"]) if candidates else 0
    shortest = _tokens(chat, _without_front(task, longest, enough))
    if shortest > limit:
        raise DataError(
            f"the prompt of task {task.task_id} cannot be truncated to episode.max_prompt_tokens",
            got=f"{shortest} tokens without its longest message (system messages are kept)",
            expected=f"≤ {limit}",
            remedy="raise episode.max_prompt_tokens, or shorten the other messages and the tools",
        )
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        fits = _tokens(chat, _without_front(task, longest, middle)) <= limit
        too_few, enough = (too_few, middle) if fits else (middle, enough)
    return _without_front(task, longest, enough)


def truncation_notes(tasks: Sequence[Task], split: str, limit: int) -> Iterator[str]:
    """Yield a sentence on the truncated prompts of a split, if there are any."""
    truncated = [task for task in tasks if any("cut_chars" in message for message in task.messages)]
    if truncated:
        cut_chars: Counter[str] = Counter()
        for message in (message for task in truncated for message in task.messages):
            cut_chars[message["role"]] += message.get("cut_chars", 0)
        by_role = ", ".join(
            f"{role} messages lost {with_count(number, 'character')}"
            for role, number in cut_chars.items()
            if number
        )
        verb = "is" if len(truncated) == 1 else "are"
        prompts = with_count(len(tasks), f"{split} prompt")
        yield f"{len(truncated)} of {prompts} {verb} truncated to {limit} tokens: {by_role}"


def _tokens(chat: Chat, task: Task) -> int:
    """Return the tokens of the rendered prompt."""
    return len(render_prompt(chat, task).token_ids)


def _without_front(task: Task, index: int, count: int) -> Task:
    """Return the task with ``count`` leading characters of one message replaced by a mark."""
    if not count:
        return task
    message = task.messages[index]
    content = f"[… {with_count(count, 'character')} cut]\n{message['content'][count:]}"
    shorter: Message = {**message, "content": content, "cut_chars": count}
    return replace(task, messages=(*task.messages[:index], shorter, *task.messages[index + 1 :]))
