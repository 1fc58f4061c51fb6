"""A task folder in Harbor's format: what it asks, what its container would be, and what tests it."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from truing.errors import DataError

DEFINITIONS = ("Dockerfile", "docker-compose.yaml", "docker-compose.yml", ".dockerignore")
"""Files of ``environment/`` that define a container and are not part of its working directory."""

TEST_SECONDS = 600.0
"""Harbor's time limit of tests, where ``[verifier]`` names none."""

CANARY = re.compile(r"\s*(<!--.*canary.*-->|#.*canary.*)\s*", re.IGNORECASE)
"""A line that marks data of a benchmark; Harbor shows none of those before the instruction to an agent."""


@dataclass(frozen=True)
class TaskFolder:
    """A task folder, with the contents of its ``task.toml``."""

    path: Path
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the folder, which is the task's id."""
        return self.path.name

    @property
    def environment(self) -> Mapping[str, Any]:
        """The table ``[environment]``."""
        return self._table("environment")

    @property
    def verifier(self) -> Mapping[str, Any]:
        """The table ``[verifier]``."""
        return self._table("verifier")

    @property
    def image(self) -> str | None:
        """The image that the task names."""
        return self.environment.get("docker_image")

    @cached_property
    def instruction(self) -> str:
        """What the task asks."""
        lines = (self.path / "instruction.md").read_text(encoding="utf-8").split("\n")
        while lines and CANARY.fullmatch(lines[0]):
            lines.pop(0)
        return "\n".join(lines).strip()

    @cached_property
    def dockerfile(self) -> list[tuple[str, str]]:
        """The instructions of its Dockerfile, each a word in capitals and its arguments; [] without one."""
        file = self.path / "environment" / "Dockerfile"
        if not file.is_file():
            return []
        text = re.sub(r"^\s*#.*\n?", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        lines = [line.strip() for line in re.sub(r"\\\s*\n", " ", text).splitlines() if line.strip()]
        return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]

    @property
    def workdir(self) -> str | None:
        """The working directory in the container; None if neither task nor Dockerfile names one."""
        named = [rest for word, rest in self.dockerfile if word == "WORKDIR"]
        return self.environment.get("workdir") or (named[-1] if named else None)

    def _table(self, name: str) -> Mapping[str, Any]:
        table = self.settings.get(name, {})
        if not isinstance(table, Mapping):
            raise DataError(f"{self.path}/task.toml has no table [{name}]", got=f"{table!r:.200}")
        return table


def read_task_folders(folder: str, key: str) -> list[TaskFolder]:
    """Return the task folders of a folder, by name.

    Raises:
        DataError: There is none, or one lacks a file.
    """
    root = Path(folder).expanduser().resolve()
    found = sorted(root.glob("*/task.toml")) if root.is_dir() else []
    if not found:
        raise DataError(
            f"recipe key 'env.{key}' names no folder of tasks",
            got=folder,
            expected="a folder whose folders each have a task.toml",
            remedy="name the folder above it" if (root / "task.toml").is_file() else "",
        )
    return [_read(file) for file in found]


def _read(file: Path) -> TaskFolder:
    """Return the task folder of a ``task.toml``."""
    try:
        task = TaskFolder(file.parent, tomllib.loads(file.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is no TOML", got=error) from error
    if "steps" in task.settings:
        raise DataError(
            f"task {task.name!r} has several steps", got="[[steps]]", expected="one instruction.md and tests"
        )
    missing = [name for name in ("instruction.md", "tests/test.sh") if not (file.parent / name).is_file()]
    if missing:
        raise DataError(
            f"task {task.name!r} is not complete",
            got=f"{file.parent} without {', '.join(missing)}",
            expected="task.toml, instruction.md and tests/test.sh",
        )
    return task
