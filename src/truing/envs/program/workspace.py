"""Workspaces: a folder of its own for each rollout, kept while its rewards may be computed again."""

import fnmatch
import json
import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from truing.envs.program.supervisor.disk import entries
from truing.errors import ProgramError, RecipeError
from truing.types.rollout import Task
from truing.utils.workspaces import remove_folder, workspaces_root

OWN = ".truing"
"""The folder of a workspace with its task file and temporary files."""

TASK_FILE = f"{OWN}/task.json"

MAX_FILES = 100
"""Files on record."""

MAX_TEXT = 4096
"""Bytes of a file whose text is on record."""


class Workspaces:
    """The workspaces of an environment."""

    def __init__(self, template: str | None, max_bytes: int | None = None) -> None:
        self._template = None if template is None else _template(template, max_bytes)
        self._collections: deque[list[Path]] = deque([[]])

    def new(self, name: str, task: Task) -> Path:
        """Return a new workspace with a copy of the recipe's folder and a task file."""
        path = workspaces_root() / folder_name(name)
        remove_folder(path)
        self._collections[-1].append(path)
        try:
            if self._template is None:
                path.mkdir()
            else:
                shutil.copytree(self._template, path, symlinks=True)
            (path / OWN / "tmp").mkdir(parents=True)
            (path / TASK_FILE).write_text(json.dumps(task_facts(task), default=str), encoding="utf-8")
        except (OSError, shutil.Error) as error:
            raise ProgramError(
                f"the workspace of task {task.task_id!r} cannot be made",
                got=error,
                expected=f"a folder in {workspaces_root()} that can be written",
                remedy="free disk space there, or set the variable TMPDIR of the trainer to another disk",
            ) from error
        return path

    def begin_collection(self, kept: int = 2) -> None:
        """Keep the workspaces of the last ``kept`` collections, the one that begins among them."""
        self._collections.append([])
        while len(self._collections) > kept:
            for path in self._collections.popleft():
                remove_folder(path)


def folder_name(name: str) -> str:
    """Return the name of a rollout's workspace, which is one component of a path."""
    return re.sub(r"[^A-Za-z0-9_.-]", ".", name).lstrip(".") or "rollout"


def task_facts(task: Task) -> dict[str, Any]:
    """Return what a program may know of its task: not the answer, and no demonstration."""
    facts = {"id": task.task_id, "messages": [dict(message) for message in task.messages]}
    return {name: value for name, value in task.info.items() if name not in facts} | facts


def check_workspace(folder: Path) -> None:
    """Raise unless a program has left its workspace where it was: what is there now may be of others.

    Raises:
        ProgramError: The workspace is a link, a file, or gone.
    """
    if folder.is_symlink() or not folder.is_dir():
        kind = "a link" if folder.is_symlink() else "a file" if folder.exists() else "nothing"
        raise ProgramError(
            "the program has removed its workspace",
            got=f"{kind} in its place",
            expected="the folder that the program started in",
            remedy="let programs delete files in their workspace, and not the workspace",
        )


def recorded_files(folder: Path, patterns: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return size, and text if it is short, of the files that match a pattern, by name.

    Raises:
        ProgramError: The workspace is no folder any more, or has folders whose paths are too long.
    """
    found: dict[str, Mapping[str, Any]] = {}
    names = dict(_files(folder)) if patterns else {}
    for name in sorted(names):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            found[_encodable(name)] = _facts(names[name], folder / name, folder)
        if len(found) == MAX_FILES:
            break
    return found


def _template(folder: str, max_bytes: int | None) -> Path:
    """Return the folder that workspaces are copies of, checked."""
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise RecipeError(
            "recipe key 'env.folder' names no folder",
            got=folder,
            expected="a folder that is copied into each workspace",
            remedy="relative paths start at the folder that truing is run in",
        )
    size = sum(file.lstat().st_size for file in path.rglob("*"))
    if max_bytes is not None and size > max_bytes:
        raise RecipeError(
            "env.folder is larger than a workspace may become",
            got=f"{size / 1e9:.3g} GB in {folder}",
            expected=f"less than env.max_disk = {max_bytes / 1e9:g}GB",
            remedy="leave out of it what no program changes, such as data and environments of Python",
        )
    return path


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield names and sizes of the regular files below a folder; links are not followed."""
    try:
        for name, status in entries(str(folder)):
            if stat.S_ISREG(status.st_mode) and not name.startswith(f"{OWN}/"):
                yield name, status.st_size
    except OSError as error:
        raise ProgramError(
            "the files of a workspace cannot be read",
            got=error.strerror,
            expected="paths that are short enough for the system",
            remedy="nest fewer folders",
        ) from error


def _facts(size: int, file: Path, folder: Path) -> Mapping[str, Any]:
    """Return the size of a file, and its text if that is short, with the folder's path as a dot."""
    if size > MAX_TEXT:
        return {"size": size}
    try:
        return {"size": size, "text": file.read_bytes().decode("utf-8").replace(str(folder), ".")}
    except (UnicodeDecodeError, OSError):  # it may not be read, or its path is too long
        return {"size": size}


def _encodable(name: str) -> str:
    """Return the name of a file that can be stored: U+FFFD for what is no UTF-8."""
    return os.fsencode(name).decode("utf-8", errors="replace")
