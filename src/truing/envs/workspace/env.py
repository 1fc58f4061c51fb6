"""An office in which the policy works with tools, judged by the state that it leaves."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, field_validator

from truing.config import FrozenModel, PositiveInt
from truing.envs.arithmetic.questions import Draws
from truing.envs.base import Split
from truing.envs.data.generated import alternate_kinds, check_kinds, draw_distinct
from truing.envs.tools import ToolEpisode
from truing.envs.workspace.grade import progress, success, valid_calls
from truing.envs.workspace.problem import Problem
from truing.envs.workspace.problem_types import KINDS, OFFICE_KINDS
from truing.envs.workspace.tools import TOOLS, open_office
from truing.rewards import Rewards
from truing.types.message import AssistantMessage, ToolSpec
from truing.types.rollout import Task

Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class WorkspaceConfig(FrozenModel):
    """Which problems are made, how many, and what they are judged by."""

    kinds: Annotated[tuple[str, ...], Field(min_length=1)] = tuple(OFFICE_KINDS)
    """Names from the table in envs/workspace/problem_types.py; tasks take turns among them."""
    train: PositiveInt = 1024
    """How many tasks to train on, all different in the request or in the calls that it takes."""
    eval: PositiveInt = 256
    """How many tasks to evaluate on; what they ask for is never asked for in training."""
    seed: int = 0
    """Another seed makes other tasks, and keeps others for evaluation."""
    system: str = (
        "You work in an office. Do what is asked with the tools, then say in one sentence what you did."
    )
    """The system message; where it is empty there is none."""
    tools: Literal["needed", "all"] = "needed"
    """Which tools there are: those that some task of the chosen kinds needs, or all of the office."""
    by_heart: Share = 0.0
    """Share of demonstrations by one who knew what others look up: who imitates them learns to guess."""
    progress_weight: Weight = 0.0
    """Weight of the reward ``progress``, beside ``success`` with weight 1."""
    valid_calls_weight: Weight = 0.0
    """Weight of the reward ``valid_calls``."""

    @field_validator("kinds")
    @classmethod
    def _known(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        return check_kinds(kinds, KINDS)


class Workspace:
    """Problems drawn by keyed hashing: problem ``i`` is the same however many are asked for."""

    Config = WorkspaceConfig
    notes: Sequence[str] = ()

    def __init__(self, config: WorkspaceConfig) -> None:
        self.config = config
        self.rewards: Rewards = {
            "success": (success, 1.0),
            "progress": (progress, config.progress_weight),
            "valid_calls": (valid_calls, config.valid_calls_weight),
        }
        self.tools = tuple(TOOLS.values()) if config.tools == "all" else _needed(config.kinds)
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": alternate_kinds(config.kinds, partial(self._of_kind, "train"), config.train),
            "eval": alternate_kinds(config.kinds, partial(self._of_kind, "eval"), config.eval),
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split; kinds take turns."""
        return self._tasks[split]

    def open(self, task: Task) -> ToolEpisode:
        """The office as the task finds it, with the tools that its prompt shows."""
        return open_office(task.answer["office"], [spec.name for spec in task.tools])

    def _of_kind(self, split: Split, kind: str, count: int) -> list[Task]:
        """The first ``count`` tasks of one kind."""
        system = [{"role": "system", "content": self.config.system}] if self.config.system else []
        return [
            Task(
                task_id=f"{kind}-{self.config.seed}-{split}-{index}",
                family=f"workspace/{kind}",
                messages=(*system, {"role": "user", "content": problem.asked}),
                answer={"office": problem.office.snapshot(), "wanted": problem.wanted()},
                demonstration=self._demonstration(problem, (split, kind, index)),
                tools=self.tools,
            )
            for index, problem in enumerate(_problems(kind, split, count, self.config.seed))
        ]

    def _demonstration(self, problem: Problem, place: tuple[Split, str, int]) -> tuple[AssistantMessage, ...]:
        """What the task's demonstrator says: a keyed draw decides whether it looks things up."""
        drawn = Draws(self.config.seed, "by heart", *place).between(1, 1000)
        return problem.turns_without_lookups() if drawn <= 1000 * self.config.by_heart else problem.turns


def _needed(kinds: Sequence[str]) -> tuple[ToolSpec, ...]:
    """The tools that the kinds need, in the order of the table; problems of a kind need the same."""
    used = {name for kind in kinds for name in KINDS[kind](Draws(kind)).used_tools()}
    return tuple(spec for name, spec in TOOLS.items() if name in used)


def _problems(kind: str, split: Split, count: int, seed: int) -> list[Problem]:
    """The first ``count`` different problems of a kind that the seed keeps for a split."""

    def draw(attempt: int) -> tuple[str, Problem]:
        problem = KINDS[kind](Draws(seed, kind, attempt))
        return repr((problem.asked, problem.turns)), problem

    made = draw_distinct(draw, split, count, seed, kind, split_key=lambda problem: problem.split_key)
    return [problem for _, problem in made]
