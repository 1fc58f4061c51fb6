"""Any task of the library reasoning-gym, by name, graded by the library's own scorer."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from truing.config import FrozenModel, PositiveInt
from truing.envs.base import Split
from truing.envs.data.generated import draw_distinct
from truing.envs.optional_packages import import_optional
from truing.errors import RecipeError
from truing.rewards import AnswerFormat, Rewards, extract_answer, format_answer
from truing.types.rollout import Rollout, Task
from truing.utils.deep_copy import deep_copy
from truing.utils.format import did_you_mean

DRAWS = 8
"""Maximum questions to draw per wanted task: some generators create all of them at once."""


class ReasoningGymConfig(FrozenModel):
    """The library's task, and the number of questions."""

    task: str
    """Name in the library, such as `chain_sum` or `countdown`."""
    train: PositiveInt = 1024
    """How many questions to train on, all different."""
    eval: PositiveInt = 256
    """How many questions to evaluate on, all different, none of them trained on."""
    seed: int = 0
    """Another seed generates other questions and another split."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The library's options for this task, such as `{ min_terms = 2 }`; others have its defaults."""
    answer_format: AnswerFormat = "tag"
    """Where the answer is: on the only "line" of the response, or in a closing "tag"."""
    system: str = "End your reply with <answer>your answer</answer>."
    """The system message; empty for none."""


class ReasoningGym:
    """Questions that the library generates; with a demonstration only if its answer has the full score."""

    Config = ReasoningGymConfig
    notes: Sequence[str] = ()

    def __init__(self, config: ReasoningGymConfig) -> None:
        self.config = config
        self.rewards: Rewards = {"score": (self._score, 1.0)}
        self._dataset = _dataset(config)
        self._entries: dict[str, Mapping[str, Any]] = {}
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": self._make("train", config.train),
            "eval": self._make("eval", config.eval),
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the questions of a split."""
        return self._tasks[split]

    def _make(self, split: Split, count: int) -> list[Task]:
        """Return the first ``count`` questions of a split."""
        config = self.config
        questions = draw_distinct(self._draw, split, count, config.seed, config.task)
        return [
            self._task(f"{config.task}-{config.seed}-{split}-{index}", entry)
            for index, (_, entry) in enumerate(questions)
        ]

    def _draw(self, attempt: int) -> tuple[str, Mapping[str, Any]]:
        """A question, and the library's data of it."""
        entry = self._dataset[attempt]
        return entry["question"], entry

    def _task(self, task_id: str, entry: Mapping[str, Any]) -> Task:
        """Return a question as a task."""
        self._entries[task_id] = entry
        system = [{"role": "system", "content": self.config.system}] if self.config.system else []
        formatted = (
            None if entry["answer"] is None else format_answer(entry["answer"], self.config.answer_format)
        )
        return Task(
            task_id=task_id,
            family=f"reasoning-gym/{self.config.task}",
            messages=(*system, {"role": "user", "content": entry["question"]}),
            answer=entry["answer"],
            demonstration=formatted if formatted is not None and self._judge(formatted, entry) == 1 else None,
        )

    def _score(self, rollout: Rollout, task: Task) -> float:
        """Return the library's score of the answer; a response without one gets 0."""
        return self._judge(rollout.text, self._entries[task.task_id])

    def _judge(self, response: str, entry: Mapping[str, Any]) -> float:
        """The library's score of the answer in a response."""
        answer = extract_answer(response, self.config.answer_format)
        return (
            0.0
            if answer is None
            else float(self._dataset.score_answer(answer, deep_copy(dict(entry), "a question")))
        )


def _dataset(config: ReasoningGymConfig) -> Any:
    """The library's generator for a task."""
    factory = import_optional("reasoning_gym.factory", "tasks")
    import_optional("reasoning_gym", "tasks")  # registers the tasks
    if config.task not in factory.DATASETS:
        raise RecipeError(
            f"reasoning-gym has no task {config.task!r}",
            expected=f"one of its {len(factory.DATASETS)} tasks",
            remedy=did_you_mean(config.task, factory.DATASETS),
        )
    size = DRAWS * (config.train + config.eval)
    try:
        return factory.create_dataset(config.task, seed=config.seed, size=size, **config.options)
    except (TypeError, AssertionError) as error:  # raised by its dataclasses and their checks
        raise RecipeError(
            f"reasoning-gym's {config.task!r} does not take these env.options",
            got=f"{config.options}: {error}",
        ) from error
