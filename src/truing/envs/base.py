"""The interface of environments: tasks and their rewards."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from truing.errors import DataError, RecipeError
from truing.rewards import Rewards
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Task
from truing.utils.deep_copy import deep_copy
from truing.utils.rng import seed_of

Split = Literal["train", "eval"]


@runtime_checkable
class Env(Protocol):
    """Any object with these three members; docs/tasks.md shows one.

    ``tasks`` returns the same tasks in the same order at every call. No task of one split has the id or the
    messages of a task of the other (``checked_tasks`` checks it). ``notes`` lists, in sentences, what was
    skipped in the data. An environment may list in ``idle`` the tasks that are solved without any action;
    `truing check` reads it.
    """

    if TYPE_CHECKING:  # read only: frozen classes and properties fit too

        @property
        def rewards(self) -> Rewards:
            """The reward functions, with their weights."""
            ...

        @property
        def notes(self) -> Sequence[str]:
            """What was skipped in the data."""
            ...
    else:  # a class that inherits from this one may set them
        rewards: Rewards
        notes: Sequence[str]

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, in a fixed order."""
        ...


class Episode(Protocol):
    """The environment's state of one rollout of a task; rollouts share no state."""

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return the replies to a turn of the policy; none if the episode is over."""
        ...

    def outcome(self) -> Mapping[str, Any]:
        """Return the final state, for rewards and the record: plain JSON data."""
        ...


@runtime_checkable
class MultiTurnEnv(Env, Protocol):
    """An environment whose tasks take several turns: it opens a new episode for each rollout."""

    def open(self, task: Task) -> Episode:
        """Return a new episode; a task opens an equal episode every time."""
        ...


def check_is_env(env: object) -> None:
    """Raise unless an object has the members of an environment."""
    if isinstance(env, Env) and not isinstance(env, type):
        return
    missing = [name for name in ("tasks", "rewards", "notes") if not hasattr(env, name)]
    if isinstance(env, type):
        got, remedy = f"the class {env.__name__}", f"pass an object of it: env={env.__name__}()"
    elif isinstance(env, Sequence) and not isinstance(env, str):
        got = f"a {type(env).__name__} of {len(env)}"
        remedy = 'write rows to a file, and set [env] name = "dataset" and data in the recipe'
    elif isinstance(env, str | Mapping):
        got, remedy = f"{env!r:.200}", "put the name and the keys of an environment into [env] of the recipe"
    else:
        got, remedy = f"{env!r:.200}, without {', '.join(missing)}", "`truing explain tasks` shows some"
    raise RecipeError(
        "env= is not an environment",
        got=got,
        expected="an object with tasks(split), rewards and notes",
        remedy=remedy,
    )


def checked_tasks(env: Env, *, evaluated: bool = True) -> dict[Split, Sequence[Task]]:
    """Return both splits of an environment, checked to be valid and disjoint, as copies.

    Args:
        env: the environment.
        evaluated: whether there must be evaluation tasks.

    Raises:
        DataError: A split is empty, an id occurs twice, a prompt of one split is also in the other, or a task
            cannot be copied.
    """
    splits: dict[Split, Sequence[Task]] = deep_copy(
        {"train": list(env.tasks("train")), "eval": list(env.tasks("eval"))}, "a task"
    )
    for split, tasks in splits.items():
        if not tasks and (evaluated or split == "train"):
            raise DataError(
                f"the environment has no {split} tasks", remedy="give it more data, or another share"
            )
    seen: dict[str, Split] = {}
    tasks_of_both: list[tuple[Split, Task]] = [(split, task) for split in splits for task in splits[split]]
    for split, task in tasks_of_both:
        _check_messages(task)
        _check_tools(task)
        if task.task_id in seen:
            both = seen[task.task_id] != split
            raise DataError(
                "two tasks have one id" + (", one to train on and one to evaluate on" if both else ""),
                got=task.task_id,
                expected="an id for each task, and each task in one split",
                remedy="return it for one split only: tasks(split) gets the split's name" if both else "",
            )
        seen[task.task_id] = split
    trained_on = {prompt_key(task): task.task_id for task in splits["train"]}
    for task in splits["eval"]:
        if prompt_key(task) in trained_on:
            twins = f"{trained_on[prompt_key(task)]} (train) and {task.task_id} (eval)"
            raise DataError(
                "a prompt is trained on and evaluated",
                got=twins,
                expected="each prompt in one split",
                remedy="leave it out of one split; with a share for evaluation, split by the prompt",
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
    """Raise if two tools have one name."""
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
    """Return a number in [0, 1) from the key alone; below the eval share, a question is for evaluation."""
    return seed_of(*key) / 2**63


PromptKey = tuple[tuple[tuple[str, str], ...], ...]


def prompt_key(task: Task) -> PromptKey:
    """Return the messages of a task in a form that can be compared and hashed."""
    return tuple(
        tuple(sorted((key, repr(value)) for key, value in message.items())) for message in task.messages
    )
