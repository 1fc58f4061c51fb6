"""The recipe keys of Harbor's task folders."""

from typing import Annotated, ClassVar

from pydantic import Field

from truing.envs.program.config import ProcessConfig


class HarborConfig(ProcessConfig):
    """A folder of tasks in Harbor's format, and the program that works on them."""

    IMAGES_OF_TASKS: ClassVar[bool] = True

    tasks: str
    """A folder of folders, each with `task.toml`, `instruction.md`, `environment/` and `tests/test.sh`."""
    eval_tasks: str | None = None
    """A folder of tasks to evaluate on; if not set, a share of `tasks`."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Without `eval_tasks`, share of instructions for evaluation: those with the smallest hash."""
    seed: int = 0
    """Another seed selects other tasks for evaluation."""
    reward: str = "reward"
    """The value of `reward.json` that is the reward; `reward.txt` has one value, `reward`."""
