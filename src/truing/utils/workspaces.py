"""Where the workspaces of programs are: rewards that look at what a program left find its folder here."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = "TRUING_WORKSPACES"
"""Environment variable of the trainer and its processes: the folder of all workspaces."""


def workspace_of(outcome: Mapping[str, Any]) -> Path | None:
    """Return the workspace of a rollout's program, by its outcome; None if it has none any more."""
    name = outcome.get("workspace")
    root = os.environ.get(ROOT)
    if not isinstance(name, str) or root is None or Path(name).name != name:
        return None
    path = Path(root, name)
    return path if path.is_dir() else None
