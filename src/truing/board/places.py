"""What can be shown: runs, labs and audits under one folder, each known by its path below it.

Whoever asks names a place by this path, and it is looked up among what was found: nothing that a request
says is ever joined to a path. Links are not followed, so nothing outside of the folder is served.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from truing.doctor.kept import is_kept
from truing.errors import RecordError
from truing.record.store import EVENTS, PARQUET, RECIPE, ROLLOUTS, RUN, STEPS

Kind = Literal["run", "lab", "audit"]

INSIDE = ("rollouts", "checkpoints", "tokenizer", "node_modules", "__pycache__")
"""Folders in which no run lies."""

MOST = 20_000
"""Folders that are looked through; beyond them, the board is to be opened further below."""

FILES = (RUN, RECIPE, STEPS, EVENTS, PARQUET, ROLLOUTS, "tokenizer", "tokenizer/tokenizer.json")
"""What of a run is opened."""


@dataclass
class Places:
    """What lies under ``root``, as of the last ``look``."""

    root: Path
    runs: dict[str, Path] = field(default_factory=dict)
    labs: dict[str, Path] = field(default_factory=dict)
    audits: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what was left out, and why

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise RecordError(
                f"{self.root} is no folder", expected="a folder with runs", remedy="truing board runs"
            )
        self.root = self.root.resolve()
        self.look()

    def look(self) -> None:
        """Find what is there now."""
        found: dict[Kind, dict[str, Path]] = {"run": {}, "lab": {}, "audit": {}}
        notes = list[str]()  # two threads may look at once
        for folder, kind in self._walk(notes):
            name = folder.relative_to(self.root).as_posix()
            found[kind][self.root.name if name == "." else name] = folder
        self.runs, self.labs, self.audits = found["run"], found["lab"], found["audit"]
        self.notes = notes

    def _walk(self, notes: list[str]) -> Iterator[tuple[Path, Kind]]:
        for seen, (here, folders, files) in enumerate(os.walk(self.root, followlinks=False)):
            if seen == MOST:
                notes.append(f"only {MOST} folders were looked through; open the board further below")
                return
            folders[:] = sorted(each for each in folders if each not in INSIDE and not each.startswith("."))
            folder = Path(here)
            notes += [
                f"{folder / each} is a link, and was not followed"
                for each in folders
                if (folder / each).is_symlink()
            ]
            if RUN in files and STEPS in files:
                if leads_out(folder, self.root):
                    notes.append(f"{folder} holds links that lead out of {self.root}; it is not shown")
                else:
                    yield folder, "run"
            elif "lab.toml" in files:
                yield folder, "lab"
            elif is_kept(folder):
                yield folder, "audit"


def leads_out(run_dir: Path, root: Path) -> bool:
    """Whether a file of a run is a link to somewhere else."""
    return any(not (run_dir / name).resolve().is_relative_to(root) for name in FILES)
