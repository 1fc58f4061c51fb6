"""Folders of the tests: the repository, rows written in the published shapes, and the published files."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "tests" / "data"
PUBLISHED = ROOT.parent / "shared" / "data"


def published_files() -> Path:
    """The folder of the published files; a test that asks for them fails where they are not."""
    if not PUBLISHED.is_dir():
        pytest.fail(f"this test reads the published data files, and there is no folder {PUBLISHED}", False)
    return PUBLISHED


def rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
