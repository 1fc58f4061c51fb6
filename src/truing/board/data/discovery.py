"""What can be shown: runs, labs and audits under one folder, each known by its path below it.

Whoever asks names a place by this path, and it is looked up among what was found: nothing that a request
says is ever joined to a path. Links are not followed, so nothing outside of the folder is served.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from glob import escape, glob
from itertools import chain
from pathlib import Path
from typing import Literal

from truing.doctor.saved_updates import FILE_NAME
from truing.errors import RecordError
from truing.lab.store.lab import CONFIG
from truing.record.store import EVENTS, PARQUET, RECIPE, ROLLOUTS, RUN, STEPS

Kind = Literal["run", "lab", "audit"]

RUN_SUBFOLDERS = ("rollouts", "checkpoints", "tokenizer")
"""Folders of a run in which no other lies."""

IGNORED_FOLDERS = ("node_modules", "__pycache__")
"""Folders that are nobody's runs, wherever they are."""

MAX_FOLDERS = 20_000
"""Folders that are looked through; beyond them, the board is to be opened further below."""

OPENED_FILES: Mapping[Kind, tuple[str, ...]] = {
    "run": (RUN, RECIPE, STEPS, EVENTS, PARQUET, ROLLOUTS, "tokenizer", "tokenizer/tokenizer.json"),
    "lab": ("*", "hypotheses/*", "experimental-results/ledger", "experimental-results/ledger/*"),
    "audit": ("*.step.safetensors",),
}
"""What is opened of each kind of place."""


@dataclass
class FolderIndex:
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
        self.rescan()

    def rescan(self) -> None:
        """Find what is there now."""
        found: dict[Kind, dict[str, Path]] = {"run": {}, "lab": {}, "audit": {}}
        notes: list[str] = []
        for folder, kind in self._walk(notes):
            if why := why_unsafe(folder, self.root, kind):
                notes.append(f"{folder} holds {why}; it is not shown")
                continue
            name = "" if folder == self.root else folder.relative_to(self.root).as_posix()
            name = name or self.root.name or "/"
            while name in found[kind]:  # the folder itself is called like one that lies in it
                name = f"./{name}"
            found[kind][name] = folder
        self.runs, self.labs, self.audits, self.notes = found["run"], found["lab"], found["audit"], notes

    def _walk(self, notes: list[str]) -> Iterator[tuple[Path, Kind]]:
        def unreadable(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # one that vanished meanwhile is not there
                notes.append(f"{error.filename} cannot be looked into: {error.strerror}")

        for seen, (here, folders, files) in enumerate(os.walk(self.root, onerror=unreadable)):
            if seen == MAX_FOLDERS:
                notes.append(f"only {MAX_FOLDERS} folders were looked through; open the board further below")
                return
            folder, kind = Path(here), _kind(files)
            skipped = (*IGNORED_FOLDERS, *RUN_SUBFOLDERS) if kind == "run" else IGNORED_FOLDERS
            folders[:] = sorted(each for each in folders if each not in skipped and each[0] != ".")
            linked = [each for each in folders if (folder / each).is_symlink()]
            notes += [f"{folder / each} is a link, and was not followed" for each in linked]
            if kind:
                yield folder, kind


def _kind(files: Collection[str]) -> Kind | None:
    """What a folder with these files is."""
    if RUN in files and STEPS in files:
        return "run"
    if CONFIG in files:
        return "lab"
    return "audit" if FILE_NAME.format(0) in files else None


def why_unsafe(folder: Path, root: Path, kind: Kind = "run") -> str:
    """Why nothing of a place is opened; "" where it may be.

    A link may lead to somewhere else, and whoever opens a pipe may wait for ever.
    """
    here = str(folder)
    found = [
        glob(f"{escape(here)}/{name}", include_hidden=True) if "*" in name else [f"{here}/{name}"]
        for name in OPENED_FILES[kind]
    ]
    every = [path for path in (here, *chain.from_iterable(found)) if os.path.lexists(path)]
    if any(os.path.islink(path) and not Path(path).resolve().is_relative_to(root) for path in every):
        return f"links that lead out of {root}"
    plain = all(os.path.isfile(path) or os.path.isdir(path) or os.path.islink(path) for path in every)
    return "" if plain else "what is neither a file nor a folder"
