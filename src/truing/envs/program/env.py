"""Programs as an environment: the rows of a data set are tasks, and each rollout is a run of the program."""

from collections.abc import Mapping
from typing import Any

from truing.envs.dataset import Dataset
from truing.envs.program.call_rules import call_rules
from truing.envs.program.command_program import CommandProgram
from truing.envs.program.config import ProgramConfig
from truing.envs.program.workspace import Workspaces, recorded_files
from truing.envs.program_env import Access
from truing.types.rollout import Task


class ProgramDataset(Dataset):
    """Rows with a prompt; a program works on each, and rewards judge its outcome."""

    Config = ProgramConfig

    def __init__(self, config: ProgramConfig) -> None:
        super().__init__(config)
        self.config: ProgramConfig = config
        self.at_once = config.at_once
        self.calls = call_rules(config)
        self._program = CommandProgram(config)
        self._workspaces = Workspaces(config.folder, config.disk_bytes)

    def begin_collection(self, kept: int = 2) -> None:
        """Remove the workspaces of all but the last ``kept`` collections."""
        self._workspaces.begin_collection(kept)

    def run(self, task: Task, access: Access, name: str) -> Mapping[str, Any]:
        """Run a program to its end, and return its outcome."""
        workspace = self._workspaces.new(name, task)
        outcome = self._program.run(task, access, workspace)
        files = recorded_files(workspace, self.config.files)
        return {**outcome, "files": files, "workspace": workspace.name}

    def stop(self) -> None:
        """End all programs that run."""
        self._program.stop()
