"""Programs as environments: each rollout is a run of the program, in a workspace of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from truing.config import validated
from truing.envs.base import Split
from truing.envs.data.rows import parse_spec
from truing.envs.dataset import Dataset
from truing.envs.dataset.config import DatasetConfig
from truing.envs.imported import import_object
from truing.envs.program.call_rules import call_rules
from truing.envs.program.command_program import CommandProgram
from truing.envs.program.config import CallOptions, ProgramConfig, ProgramOptions
from truing.envs.program.function_program import FunctionProgram, RunProgram
from truing.envs.program.workspace import Workspaces, check_workspace, recorded_files
from truing.envs.program_env import Access
from truing.errors import ProgramCrash, RecipeError
from truing.rewards import RewardFn, Rewards, rewards_by_name
from truing.types.rollout import Task
from truing.utils.format import did_you_mean
from truing.utils.workspaces import use_workspaces_root, workspaces_root

RUNNING = ("calls", "_program", "_workspaces")
"""What a copy that computes rewards in another process does not need: it runs no program."""

OF_COMMANDS = "only your programs, in their task files, and your reward functions get"
OF_FUNCTIONS = "only your function, in task.info, and your reward functions get"
"""What becomes of columns that no key names."""


class ProgramKind(Protocol):
    """A command, or a function."""

    def run(self, task: Task, access: Access, workspace: Path) -> dict[str, Any]:
        """Run it to its end, and return its part of the outcome."""
        ...

    def stop(self) -> None:
        """End all that run, and start no other."""
        ...

    def allow(self) -> None:
        """Start others again."""
        ...


class Programs:
    """What all environments of programs share: they run one in a workspace."""

    def __init__(
        self, program: ProgramKind, options: CallOptions, workspaces: Workspaces, files: Sequence[str] = ()
    ) -> None:
        self.at_once = options.at_once
        self.calls = call_rules(options)
        self._program, self._workspaces, self._files = program, workspaces, files

    def run(self, task: Task, access: Access, name: str) -> Mapping[str, Any]:
        """Run a program to its end, and return its outcome."""
        workspace = self._workspaces.new(name, task)
        try:
            return self._left(workspace, self._program.run(task, access, workspace))
        except ProgramCrash as crash:
            crash.outcome = self._left(workspace, crash.outcome)
            raise

    def _left(self, workspace: Path, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an outcome with what is in the workspace."""
        check_workspace(workspace)
        return {**outcome, "files": recorded_files(workspace, self._files), "workspace": workspace.name}

    def begin_collection(self, kept: int = 2) -> None:
        """Remove the workspaces of all but the last ``kept`` collections."""
        self._program.allow()
        self._workspaces.begin_collection(kept)

    def stop(self) -> None:
        """End all programs that run; none starts until another collection begins."""
        self._program.stop()

    @property
    def state_of_copies(self) -> dict[str, Any]:
        """What a copy that computes rewards in another process takes over."""
        return {"root": workspaces_root()}

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name not in RUNNING}
        return kept | self.state_of_copies

    def __setstate__(self, state: dict[str, Any]) -> None:
        use_workspaces_root(state.pop("root"))
        vars(self).update(state)


class ProgramDataset(Programs, Dataset):
    """Rows with a prompt; a program works on each, and rewards judge what it leaves."""

    Config = ProgramConfig
    several_turns = True

    def __init__(self, config: ProgramConfig) -> None:
        Dataset.__init__(self, config)
        if config.function is None:
            program: ProgramKind = CommandProgram(config)
        else:
            program = FunctionProgram(import_object(config.function, "program"), config.timeout)
        _check_data_outside(config)
        Programs.__init__(self, program, config, Workspaces(config.folder, config.disk_bytes), config.files)

    def _unread(self) -> str:
        assert isinstance(self.config, ProgramConfig)
        return OF_FUNCTIONS if self.config.function else OF_COMMANDS


class _Rows(Dataset):
    """The rows of functions."""

    several_turns = True

    def _unread(self) -> str:
        return OF_FUNCTIONS


class Program(Programs):
    """A function as an environment, for ``truing.train(recipe, env=truing.Program(run, …))``.

    Args:
        run: ``(task, base_url, key)``, sync or async; it returns plain JSON data, the rollout's
            ``outcome["output"]``.
        tasks: to train on; or rows, as the key ``data`` of ``[env]`` names them, and evaluate a share.
        rewards: ``(rollout, task) -> float``, or with a third parameter ``workspace``: a list, each with
            weight 1, or name → (function, weight).
        eval_tasks: to evaluate on.
        options: keys of ``[env]`` with ``name = "program"`` that functions have, such as ``timeout=60``.
    """

    notes: Sequence[str] = ()

    def __init__(
        self,
        run: RunProgram,
        *,
        tasks: Sequence[Task] | str,
        rewards: Sequence[RewardFn] | Rewards,
        eval_tasks: Sequence[Task] = (),
        **options: Any,
    ) -> None:
        valid = validated(ProgramOptions, options, _unknown)
        program = FunctionProgram(run, valid.timeout)
        super().__init__(program, valid, Workspaces(valid.folder), valid.files)
        self.rewards = rewards_by_name(rewards)
        self._tasks: dict[Split, Sequence[Task]] = {"train": (), "eval": eval_tasks}
        if isinstance(tasks, str):
            rows = _Rows(DatasetConfig(data=tasks))
            self.notes = rows.notes
            self._tasks = {"train": rows.tasks("train"), "eval": eval_tasks or rows.tasks("eval")}
        else:
            self._tasks["train"] = tasks

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split."""
        return self._tasks[split]


def _check_data_outside(config: ProgramConfig) -> None:
    """Raise if the rows, which have the answers, are in the folder that each program gets."""
    if config.folder is None:
        return
    folder = Path(config.folder).expanduser().resolve()
    for data in (config.data, config.eval_data or ()):
        for spec in map(parse_spec, [data] if isinstance(data, str) else data):
            if spec.config is None and Path(spec.name).expanduser().resolve().is_relative_to(folder):
                raise RecipeError(
                    "the rows with the answers are in env.folder, which each program gets a copy of",
                    got=f"{spec.name} in {config.folder}",
                    expected="rows outside of it",
                    remedy="move them, or move what programs need into a folder of its own",
                )


def _unknown(key: str, got: object) -> RecipeError:
    """Return the error for an option that programs of functions do not have."""
    names = list(ProgramOptions.model_fields)
    return RecipeError(
        f"truing.Program has no option {key!r}",
        got=got,
        expected=f"one of {', '.join(names)}",
        remedy=did_you_mean(key, names),
    )
