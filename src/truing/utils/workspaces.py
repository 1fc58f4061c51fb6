"""Where the workspaces of programs are: one temporary folder of a process, which it removes at its end.

Rewards find there what a program left, also in a process that computes rewards for another one.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_ROOTS: dict[int, Path] = {}
"""By process, since a forked process has the memory of its parent."""


def workspaces_root() -> Path:
    """Return the folder of all workspaces of this process; the first call makes it."""
    process = os.getpid()
    if process not in _ROOTS:
        _ROOTS[process] = Path(tempfile.mkdtemp(prefix="truing-programs-")).resolve()
        atexit.register(_remove_own, process)
    return _ROOTS[process]


def use_workspaces_root(root: Path) -> None:
    """Look for workspaces in the folder of another process."""
    _ROOTS[os.getpid()] = root


def workspace_of(outcome: Mapping[str, Any]) -> Path | None:
    """Return the workspace of a rollout's program, by its outcome; None if there is none any more."""
    name, root = outcome.get("workspace"), _ROOTS.get(os.getpid())
    if not isinstance(name, str) or root is None or Path(name).name != name:
        return None
    path = root / name
    return path if path.is_dir() and not path.is_symlink() else None


def remove_folder(path: Path) -> None:
    """Remove a folder, at any depth and whatever its modes are; a file or link in its place, too."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path)
    except (OSError, RecursionError):  # rmtree calls itself for each level, before Python 3.13
        with suppress(OSError):  # what cannot be removed stays
            subprocess.run(["chmod", "-R", "u+rwX", path], check=False, capture_output=True)
            subprocess.run(["rm", "-rf", path], check=False, capture_output=True)


def _remove_own(process: int) -> None:
    """Remove the folder at the end of the process that made it."""
    if os.getpid() == process:
        remove_folder(_ROOTS[process])
