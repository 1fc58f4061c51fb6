"""What proves and measures Truing, such as ``python -m dev.pages.recipes``; the wheel does not have it."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The repository."""


def let_processes_import() -> None:
    """Let processes that this one starts import ``dev`` from any folder."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), *paths]))
