"""What an environment is: a supply of tasks, and what they are judged by."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from truing.errors import DataError
from truing.rewards import Rewards
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Task
from truing.utils.deep_copy import deep_copy
from truing.utils.rng import seed_of

Split = Literal["train", "eval"]


@runtime_checkable
class Env(Protocol):
    """Any object with these three members; docs/tasks.md shows one.

    ``tasks`` gives the same tasks in the same order at every call. A task of one split never has the
    id or the messages of a task of the other (``checked_tasks`` proves it). ``notes`` says in
    sentences what was left out of the data, and is empty where nothing was. An environment may name in
    ``idle`` the tasks that doing nothing solves, where its data is so; `truing check` reads it.
    """

    rewards: Rewards
    notes: Sequence[str]

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split, in their fixed order."""
        ...


class Episode(Protocol):
    """One attempt at a task, with a world of its own that nobody else touches."""

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """What the world answers to a turn of the policy; nothing where the episode is over."""
        ...

    def outcome(self) -> Mapping[str, Any]:
        """The world's final state, for graders and the record: plain data, as JSON has it."""
        ...


@runtime_checkable
class MultiTurnEnv(Env, Protocol):
    """An environment whose tasks take several turns: it opens a fresh episode for each attempt."""

    def open(self, task: Task) -> Episode:
        """A new episode; the same task opens the same world every time."""
        ...


def checked_tasks(env: Env) -> dict[Split, Sequence[Task]]:
    """Both splits of an environment, proven to be usable and apart, in copies that it cannot change.

    Raises:
        DataError: A split is empty, an id occurs twice, a prompt of one split is also in the other, or a task
            cannot be copied.
    """
    splits: dict[Split, Sequence[Task]] = deep_copy(
        {"train": list(env.tasks("train")), "eval": list(env.tasks("eval"))}, "a task"
    )
    for split, tasks in splits.items():
        if not tasks:
            raise DataError(
                f"the environment has no {split} tasks", remedy="give it more data, or another share"
            )
    seen: set[str] = set()
    for task in (*splits["train"], *splits["eval"]):
        _check_messages(task)
        _check_tools(task)
        if task.task_id in seen:
            raise DataError("two tasks have one id", got=task.task_id, expected="an id for each task")
        seen.add(task.task_id)
    trained_on = {prompt_key(task): task.task_id for task in splits["train"]}
    for task in splits["eval"]:
        if prompt_key(task) in trained_on:
            twins = f"{trained_on[prompt_key(task)]} (train) and {task.task_id} (eval)"
            raise DataError(
                "a prompt is trained on and evaluated", got=twins, expected="each prompt in one split"
            )
    return splits


def _check_messages(task: Task) -> None:
    """Raise unless a task's messages are text that a chat template can render."""
    texts = [message.get("content") for message in task.messages]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise DataError(
            f"the messages of task {task.task_id} are not all text",
            got=task.messages,
            expected="at least one message, each with a role and a content of text",
        )


def _check_tools(task: Task) -> None:
    """Raise where a call's name would leave open which tool is meant."""
    names = [spec.name for spec in task.tools]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise DataError(
            f"task {task.task_id} has two tools of one name",
            got=", ".join(twins),
            expected="a name for each tool",
            remedy="rename one, or leave one out",
        )


def hash_fraction(*key: object) -> float:
    """A number in [0, 1) that the key alone decides: below the eval share, a question is for evaluation."""
    return seed_of(*key) / 2**63


def prompt_key(task: Task) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The messages of a task as something that can be compared and hashed."""
    return tuple(
        tuple(sorted((key, repr(value)) for key, value in message.items())) for message in task.messages
    )
