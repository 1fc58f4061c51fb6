"""What an environment is: a supply of tasks, and what they are judged by."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, runtime_checkable

from truing.errors import DataError
from truing.rewards import Rewards
from truing.rng import seed_of
from truing.types import Task

Split = Literal["train", "eval"]


@runtime_checkable
class Env(Protocol):
    """Any object with these three members; docs/tasks.md shows one.

    ``tasks`` gives the same tasks in the same order at every call. A task of one split never has the
    id or the messages of a task of the other (``checked_tasks`` proves it). ``notes`` says in
    sentences what was left out of the data, and is empty where nothing was.
    """

    rewards: Rewards
    notes: Sequence[str]

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split, in their fixed order."""
        ...


def checked_tasks(env: Env) -> dict[Split, Sequence[Task]]:
    """Both splits of an environment, proven to be usable and apart.

    Raises:
        DataError: A split is empty, an id occurs twice, or a prompt of one split is also in the other.
    """
    splits: dict[Split, Sequence[Task]] = {"train": env.tasks("train"), "eval": env.tasks("eval")}
    for split, tasks in splits.items():
        if not tasks:
            raise DataError(
                f"the environment has no {split} tasks", remedy="give it more data, or another share"
            )
    seen: set[str] = set()
    for task in (*splits["train"], *splits["eval"]):
        _check_messages(task)
        if task.task_id in seen:
            raise DataError("two tasks have one id", got=task.task_id, expected="an id for each task")
        seen.add(task.task_id)
    trained_on = {_prompt(task): task.task_id for task in splits["train"]}
    for task in splits["eval"]:
        if _prompt(task) in trained_on:
            twins = f"{trained_on[_prompt(task)]} (train) and {task.task_id} (eval)"
            raise DataError(
                "a prompt is trained on and evaluated", got=twins, expected="each prompt in one split"
            )
    return splits


def nearest(name: str, valid: Iterable[str]) -> str:
    """A remedy that names the nearest valid name; empty where none is near."""
    near = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.4)
    return f"did you mean {near[0]!r}?" if near else ""


def _check_messages(task: Task) -> None:
    """Raise unless a task's messages are text that a chat template can render."""
    texts = [message.get("content") for message in task.messages]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise DataError(
            f"the messages of task {task.task_id} are not all text",
            got=task.messages,
            expected="at least one message, each with a role and a content of text",
        )


def share_of(*key: object) -> float:
    """A number in [0, 1) that the key alone decides: below the eval share, a question is for evaluation."""
    return seed_of(*key) / 2**63


def _prompt(task: Task) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The messages of a task as something that can be compared and hashed."""
    return tuple(
        tuple(sorted((key, repr(value)) for key, value in message.items())) for message in task.messages
    )
