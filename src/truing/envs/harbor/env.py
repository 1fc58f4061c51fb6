"""Task folders in Harbor's format: each rollout runs a program, and the task's tests give the reward."""

from collections.abc import Iterator, Sequence

from truing.envs.base import Split, hash_fraction
from truing.envs.harbor.config import HarborConfig
from truing.envs.harbor.needs import container_needs, image_needs, unmet_needs
from truing.envs.harbor.paths import with_paths
from truing.envs.harbor.program import HarborProgram
from truing.envs.harbor.task_folder import TaskFolder, read_task_folders
from truing.envs.imported import import_object
from truing.envs.program.containers import check_container
from truing.envs.program.env import Programs
from truing.envs.program.workspace import Workspaces
from truing.errors import DataError, RewardError
from truing.rewards import Rewards
from truing.types.rollout import Rollout, Task

SHOWN = 10
"""Tasks that an error names."""


class Harbor(Programs):
    """Tasks of folders; what the tests write after a program is its reward."""

    Config = HarborConfig

    def __init__(self, config: HarborConfig) -> None:
        self.config = config
        self.rewards: Rewards = {"tests": (self._reward, 1.0)}
        train, evaluation = _splits(config)
        folders = [*train, *evaluation]
        _check(config, folders)
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": [_task(folder, config) for folder in train],
            "eval": [_task(folder, config) for folder in evaluation],
        }
        self.notes = _notes(config, folders)
        function = None if config.function is None else import_object(config.function, "program")
        program = HarborProgram(config, {each.name: each for each in folders}, function)
        super().__init__(program, config, Workspaces(config.folder, config.disk_bytes), config.files)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, by name."""
        return self._tasks[split]

    def _reward(self, rollout: Rollout, task: Task) -> float:
        """Return the value that the recipe names, of those that the tests wrote."""
        rewards = rollout.outcome["tests"]["rewards"]
        if self.config.reward not in rewards:
            raise RewardError(
                f"the tests of task {task.task_id!r} did not write the reward that env.reward names",
                got=", ".join(rewards) or "none",
                expected=self.config.reward,
            )
        return rewards[self.config.reward]


def _splits(config: HarborConfig) -> tuple[list[TaskFolder], list[TaskFolder]]:
    """Return the folders to train on, and those to evaluate on."""
    folders = read_task_folders(config.tasks, "tasks")
    if config.eval_tasks is not None:
        return folders, read_task_folders(config.eval_tasks, "eval_tasks")
    asked = {each.instruction for each in folders}
    ordered = sorted(asked, key=lambda text: (hash_fraction("split", config.seed, text), text))
    chosen = set(ordered[: max(1, round(config.eval_share * len(ordered)))])
    return (
        [each for each in folders if each.instruction not in chosen],
        [each for each in folders if each.instruction in chosen],
    )


def _task(folder: TaskFolder, config: HarborConfig) -> Task:
    """Return a folder as a task; without a container, its working directory is a dot in what it asks."""
    asked, workdir = folder.instruction, folder.workdir
    if config.runtime == "subprocess" and workdir is not None:
        asked = with_paths(asked, {workdir: "."})
    return Task(
        task_id=folder.name,
        family="harbor",
        messages=({"role": "user", "content": asked},),
        where=str(folder.path),
    )


def _check(config: HarborConfig, folders: Sequence[TaskFolder]) -> None:
    """Raise if tasks need what they would not get.

    Raises:
        DataError: Two tasks have one name, or some need a container, or what no runtime has.
        RecipeError: An image is not there.
    """
    _check_names(folders)
    contained = config.runtime != "subprocess"
    needs = {each.name: [*unmet_needs(each), *_needs(each, config)] for each in folders}
    if refused := [f"{name} {', and '.join(found)}" for name, found in needs.items() if found]:
        more = f"\nand {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
        raise DataError(
            f"{len(refused)} of {len(folders)} tasks cannot be run",
            got="\n".join(refused[:SHOWN]) + more,
            expected="tasks that need only their files" + (" and an image" if contained else ""),
            remedy="leave them out"
            + ("" if contained else ", or set env.runtime and an image of their kind"),
        )
    for image in sorted({each.image or config.image or "" for each in folders} if contained else ()):
        check_container(config.model_copy(update={"image": image}))


def _needs(folder: TaskFolder, config: HarborConfig) -> Iterator[str]:
    """Yield what a task needs of the recipe's runtime."""
    return container_needs(folder) if config.runtime == "subprocess" else image_needs(folder, config.image)


def _check_names(folders: Sequence[TaskFolder]) -> None:
    """Raise if two tasks have one name."""
    names = [each.name for each in folders]
    if twins := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(
            "tasks of env.tasks and of env.eval_tasks have one name",
            got=", ".join(twins[:SHOWN]),
            expected="a name for each task",
        )


def _notes(config: HarborConfig, folders: Sequence[TaskFolder]) -> tuple[str, ...]:
    """Return what of the tasks is read in another way than Harbor does."""
    if config.runtime != "subprocess":
        return ("tasks in containers: of what a program changes, tests see the working directory only",)
    places = "/tests and /logs in tests, and the working directory in tests and instructions,"
    return (f"{len(folders)} tasks without a container: {places} are folders of this machine",)
