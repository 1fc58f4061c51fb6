"""Tasks that Truing makes itself: short questions with one right answer, for demos, tests and probes."""

import functools
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, field_validator

from truing.config import FrozenModel
from truing.envs.arithmetic.questions import KINDS, Draws, Question
from truing.envs.base import Split
from truing.envs.data.generated import alternate_kinds, check_kinds, draw_distinct
from truing.rewards import Rewards, extract_answer, format_answer, without_reasoning
from truing.types.rollout import Rollout, Task


class ArithmeticConfig(FrozenModel):
    """Which questions are made, and how many."""

    kinds: Annotated[tuple[str, ...], Field(min_length=1)] = ("add-2",)
    """Names from the table in envs/arithmetic/questions.py; tasks take turns among them."""
    train: Annotated[int, Field(ge=1)] = 1024
    """How many questions to train on, all different."""
    eval: Annotated[int, Field(ge=1)] = 256
    """How many questions to evaluate on, all different, none of them trained on."""
    seed: int = 0
    """Another seed asks other questions, and keeps others for evaluation."""
    system: str = "Reply with the answer only."
    """The system message; where it is empty there is none."""
    partial_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the reward ``partial``, beside ``exact`` with weight 1."""

    @field_validator("kinds")
    @classmethod
    def _known(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        return check_kinds(kinds, KINDS)


class Arithmetic:
    """Questions drawn by keyed hashing: question ``i`` is the same however many are asked for."""

    Config = ArithmeticConfig
    notes: Sequence[str] = ()

    def __init__(self, config: ArithmeticConfig) -> None:
        self.config = config
        self.rewards: Rewards = {"exact": (exact, 1.0), "partial": (partial, config.partial_weight)}
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": alternate_kinds(config.kinds, functools.partial(self._of_kind, "train"), config.train),
            "eval": alternate_kinds(config.kinds, functools.partial(self._of_kind, "eval"), config.eval),
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        """The questions of a split; kinds take turns."""
        return self._tasks[split]

    def _of_kind(self, split: Split, kind: str, count: int) -> list[Task]:
        """The first ``count`` tasks of one kind."""
        system = [{"role": "system", "content": self.config.system}] if self.config.system else []
        return [
            Task(
                task_id=f"{kind}-{self.config.seed}-{split}-{index}",
                family=f"arithmetic/{kind}",
                messages=(*system, {"role": "user", "content": asked}),
                answer=answer,
                demonstration=format_answer(answer, "line"),
            )
            for index, (asked, answer) in enumerate(_questions(kind, split, count, self.config.seed))
        ]


def exact(rollout: Rollout, task: Task) -> float:
    """1.0 where the response is the answer and nothing else (white space around it aside)."""
    return float(without_reasoning(rollout.text).strip() == task.answer)


def partial(rollout: Rollout, task: Task) -> float:
    """Share of characters of the first line that are right at their place, in [0, 1].

    Right characters / length of the longer of line and answer: 1.0 only for the answer itself.
    """
    said = extract_answer(rollout.text, "line")
    if said is None:
        return 0.0
    return sum(a == b for a, b in zip(said, task.answer, strict=False)) / max(len(said), len(task.answer))


def _questions(kind: str, split: Split, count: int, seed: int) -> list[Question]:
    """The first ``count`` different questions of a kind that the seed keeps for a split."""
    return draw_distinct(lambda attempt: KINDS[kind](Draws(seed, kind, attempt)), split, count, seed, kind)
