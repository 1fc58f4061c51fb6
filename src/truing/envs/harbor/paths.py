"""The fixed paths of Harbor's containers, and what they are on this machine."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

TESTS, LOGS = "/tests", "/logs"
"""In a container: the tests, and the folder where they write ``verifier/reward.txt``."""


def with_paths(text: str, places: Mapping[str, str]) -> str:
    """Return a text in which fixed paths, and what is below them, are elsewhere."""
    names = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))
    return re.sub(rf"(?<![\w.$~}}/-])({names})(?![\w-]|\.\w)", lambda found: places[found[1]], text)


def copy_with_paths(source: Path, target: Path, places: Mapping[str, str]) -> None:
    """Copy a folder, with fixed paths elsewhere in each file that is text."""
    shutil.copytree(source, target)
    for file in target.rglob("*"):
        if file.is_file() and not file.is_symlink():
            try:
                text = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            file.write_text(with_paths(text, places), encoding="utf-8")
