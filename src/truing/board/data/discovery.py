"""Finds runs, traces, labs and experiments under one folder, each named by its relative path.

Requests name a folder by this path, which is looked up in the index: no text of a request joins a path.
Links are not followed, so nothing outside the folder is served.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from glob import escape, glob
from itertools import chain
from pathlib import Path
from typing import Literal

from truing.doctor.traces.head import NAME as TRACE
from truing.doctor.traces.read import PATTERN
from truing.errors import RecordError
from truing.lab.forks.plan import PLAN
from truing.lab.store.lab import CONFIG
from truing.record.store import ANSWERS, EVENTS, PARQUET, RECIPE, ROLLOUTS, RUN, STEPS

Kind = Literal["run", "trace", "lab", "experiment"]

RUN_SUBFOLDERS = ("rollouts", "checkpoints", "tokenizer")
"""Subfolders of a run that contain no other run."""

IGNORED_FOLDERS = ("node_modules", "__pycache__")
"""Folders that are never searched."""

MAX_FOLDERS = 20_000
"""Maximum folders that are searched; with more, open the board in a subfolder."""

OPENED_FILES: Mapping[Kind, tuple[str, ...]] = {
    "run": (ANSWERS, RUN, RECIPE, STEPS, EVENTS, PARQUET, ROLLOUTS, "tokenizer", "tokenizer/tokenizer.json"),
    "trace": (TRACE, PATTERN),
    "lab": ("*", "hypotheses/*", "experimental-results/ledger", "experimental-results/ledger/*"),
    "experiment": (PLAN,),
}
"""Files that are opened of each kind of folder."""


@dataclass
class FolderIndex:
    """Runs, traces, labs and experiments under ``root`` as of the last ``rescan``."""

    root: Path
    runs: dict[str, Path] = field(default_factory=dict)  # and traces
    labs: dict[str, Path] = field(default_factory=dict)
    experiments: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # omitted folders, with the reason

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise RecordError(
                f"{self.root} is not a folder", expected="a folder with runs", remedy="truing board runs"
            )
        self.root = self.root.resolve()
        self.rescan()

    def rescan(self) -> None:
        """Search the folder again."""
        folders: dict[Kind, dict[str, Path]] = {kind: {} for kind in OPENED_FILES}
        notes: list[str] = []
        for folder, kind in self._walk(notes):
            if problem := why_unsafe(folder, self.root, kind):
                notes.append(f"{folder} contains {problem}; it is not shown")
                continue
            name = "" if folder == self.root else folder.relative_to(self.root).as_posix()
            name = name or self.root.name or "/"
            listed = folders["run" if kind == "trace" else kind]
            while name in listed:  # the root has the name of a subfolder
                name = f"./{name}"
            listed[name] = folder
        self.runs, self.labs = folders["run"], folders["lab"]
        self.experiments = folders["experiment"]
        self.notes = notes

    def _walk(self, notes: list[str]) -> Iterator[tuple[Path, Kind]]:
        def unreadable(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # it vanished meanwhile
                notes.append(f"{error.filename} cannot be read: {error.strerror}")

        for count, (path, folders, files) in enumerate(os.walk(self.root, onerror=unreadable)):
            if count == MAX_FOLDERS:
                notes.append(f"only {MAX_FOLDERS} folders were searched; open the board in a subfolder")
                return
            folder, kind = Path(path), _kind(files)
            ignored = (*IGNORED_FOLDERS, *RUN_SUBFOLDERS) if kind == "run" else IGNORED_FOLDERS
            folders[:] = sorted(name for name in folders if name not in ignored and name[0] != ".")
            links = [name for name in folders if (folder / name).is_symlink()]
            notes += [f"{folder / name} is a link and was not followed" for name in links]
            if kind:
                yield folder, kind


def _kind(files: Collection[str]) -> Kind | None:
    """Return the kind of a folder with these files."""
    if RUN in files and STEPS in files:
        return "run"
    if CONFIG in files:
        return "lab"
    if TRACE in files:
        return "trace"
    return "experiment" if PLAN in files else None


def why_unsafe(folder: Path, root: Path, kind: Kind = "run") -> str:
    """Return why a folder is not opened; "" if it is safe.

    A link may lead outside, and opening a pipe may block forever.
    """
    base = str(folder)
    opened = [
        glob(f"{escape(base)}/{name}", include_hidden=True) if "*" in name else [f"{base}/{name}"]
        for name in OPENED_FILES[kind]
    ]
    existing = [path for path in (base, *chain.from_iterable(opened)) if os.path.lexists(path)]
    targets = [Path(os.path.realpath(path)) for path in existing if os.path.islink(path)]
    if not all(target.is_relative_to(root) for target in targets):
        return f"links that lead out of {root}"
    regular = all(os.path.isfile(path) or os.path.isdir(path) or os.path.islink(path) for path in existing)
    return "" if regular else "something that is neither a file nor a folder"
