"""`make test` checks the same code after `make demo` as on a fresh clone."""

import subprocess
import sys

from folders import ROOT

LEFT_BEHIND = [
    line.rstrip("/")
    for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    if line.endswith("/") and "*" not in line
]
"""Folders that commands create in a clone."""


def test_folders_that_commands_create_do_not_change_how_imports_are_sorted(tmp_path):
    assert "runs" in LEFT_BEHIND
    for name in ("pyproject.toml", "src", "tests", "dev", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in LEFT_BEHIND:
        (tmp_path / name).mkdir()
    folders = [tmp_path / name for name in ("src", "tests", "dev", "recipes")]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", *folders],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "no Python files" not in done.stderr.lower()
