"""A rollout of a task folder: the program in a copy of the task's environment, then the task's tests."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from truing.envs.harbor.config import HarborConfig
from truing.envs.harbor.paths import LOGS, TESTS, copy_with_paths
from truing.envs.harbor.task_folder import DEFINITIONS, TEST_SECONDS, TaskFolder
from truing.envs.harbor.variables import filled_variables
from truing.envs.harbor.verdict import read_rewards
from truing.envs.program.command_program import CommandProgram
from truing.envs.program.function_program import FunctionProgram
from truing.envs.program.workspace import check_workspace
from truing.envs.program_env import Access
from truing.errors import ProgramError
from truing.types.rollout import Task
from truing.utils.workspaces import workspaces_root

ANY_CODE = tuple(range(256))
"""Exit codes of tests: what they wrote counts."""

AT = 'cd "$0" && exec "$@"'
"""A shell's program that starts a command in another folder."""


class HarborProgram:
    """Runs the recipe's program on a task, and then the task's tests."""

    def __init__(
        self, config: HarborConfig, tasks: Mapping[str, TaskFolder], function: Callable[..., Any] | None
    ) -> None:
        self._config, self._tasks = config, tasks
        self._function = None if function is None else FunctionProgram(function, config.timeout)
        tests = config if function is None else config.model_copy(update={"command": ("bash",)})
        self._commands = CommandProgram(tests)

    def run(self, task: Task, access: Access, workspace: Path) -> dict[str, Any]:
        """Run the program and the tests; return the program's outcome, with what the tests wrote.

        Raises:
            ProgramError: The program or its tests crashed, or exceeded a limit, or there is no reward.
        """
        folder = self._tasks[task.task_id]
        _add_environment(folder, workspace)
        outcome = self._solve(folder, task, access, workspace)
        check_workspace(workspace)
        return outcome | {"tests": self._test(folder, task, workspace)}

    def allow(self) -> None:
        """Let programs start again after ``stop``."""
        for each in self._kinds():
            each.allow()

    def stop(self) -> None:
        """End all programs and tests that run, and start no other."""
        for each in self._kinds():
            each.stop()

    def _kinds(self) -> list[CommandProgram | FunctionProgram]:
        return [self._commands, *([self._function] if self._function is not None else [])]

    def _solve(self, folder: TaskFolder, task: Task, access: Access, workspace: Path) -> dict[str, Any]:
        """Run the program."""
        if self._function is not None:
            return self._function.run(task, access, workspace)
        command = self._config.command
        assert command is not None
        config = self._at(folder, workspace, command, {}, ())
        return self._commands.run_as(config, task, access, workspace)

    def _test(self, folder: TaskFolder, task: Task, workspace: Path) -> dict[str, Any]:
        """Run the tests, which see no endpoint; return what they wrote and their exit code."""
        with tempfile.TemporaryDirectory(prefix="tests-", dir=workspaces_root()) as place:
            tests, logs = Path(place, "tests"), Path(place, "logs")
            (logs / "verifier").mkdir(parents=True)
            places = {TESTS: str(tests), LOGS: str(logs)}
            if self._config.runtime == "subprocess":
                own = {} if folder.workdir is None else {folder.workdir: str(workspace)}
                copy_with_paths(folder.path / "tests", tests, own | places)
                command, mounts = ("bash", str(tests / "test.sh")), ()
            else:
                shutil.copytree(folder.path / "tests", tests)
                command = ("bash", f"{TESTS}/test.sh")
                mounts = tuple(f"{path}:{fixed}:rw" for fixed, path in places.items())
            config = self._at(folder, workspace, command, folder.verifier.get("env", {}), mounts)
            limits = {
                "ok_codes": ANY_CODE,
                "timeout": float(folder.verifier.get("timeout_sec", TEST_SECONDS)),
            }
            try:
                ended = self._commands.run_as(config.model_copy(update=limits), task, None, workspace)
            except ProgramError as error:
                raise ProgramError(f"the tests of task {folder.name!r} did not end", got=error) from error
            return {"rewards": read_rewards(logs / "verifier", folder.name), "exit_code": ended["exit_code"]}

    def _at(
        self,
        folder: TaskFolder,
        workspace: Path,
        command: tuple[str, ...],
        variables: Mapping[str, str],
        mounts: tuple[str, ...],
    ) -> HarborConfig:
        """Return the configuration of a command in a task's working directory, with its variables."""
        config, where = self._config, f"{folder.path}/task.toml"
        named = {**folder.environment.get("env", {}), **variables}
        update: dict[str, Any] = {
            "command": command,
            "variables": config.variables | filled_variables(named, os.environ, where),
        }
        if config.runtime != "subprocess":
            assert folder.workdir is not None
            update |= {
                "command": ("sh", "-c", AT, folder.workdir, *command),
                "image": folder.image or config.image,
                "mounts": (*config.mounts, f"{workspace}:{folder.workdir}:rw", *mounts),
            }
        return config.model_copy(update=update)


def _add_environment(folder: TaskFolder, workspace: Path) -> None:
    """Copy the files of a task's environment into a workspace."""
    source = folder.path / "environment"
    if not source.is_dir():
        return
    for entry in sorted(source.iterdir()):
        target = workspace / entry.name
        if entry.name in DEFINITIONS:
            continue
        if target.exists():
            raise ProgramError(
                f"the environment of task {folder.name!r} and env.folder both have {entry.name!r}",
                remedy="rename it in env.folder",
            )
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, target, symlinks=True)
        else:
            shutil.copy2(entry, target, follow_symlinks=False)
