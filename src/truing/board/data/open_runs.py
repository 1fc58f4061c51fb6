"""Keeps runs open while pages show them, each for one reader at a time."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from truing.analysis.incremental_reader import IncrementalReader
from truing.board.data.discovery import FolderIndex
from truing.board.data.run_view import RunView, run_identity
from truing.board.data.trace_view import TraceView
from truing.doctor.traces.head import has_trace
from truing.errors import RecordError
from truing.record.malformed import as_record_error

MAX_OPEN_RUNS = 24
"""Maximum open runs; the least recently used one is closed."""


class OpenRuns:
    """Open runs by their name in the folder index."""

    def __init__(self, folders: FolderIndex) -> None:
        self.folders = folders
        self._opened: OrderedDict[str, RunView] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def locked(self, *names: str) -> Iterator[list[RunView]]:
        """Yield refreshed runs under their locks, taken in one order so that threads cannot deadlock."""
        run_views = {name: self._open(name) for name in names}
        with as_record_error(" and ".join(names)), ExitStack() as stack:
            for name in sorted(run_views):
                stack.enter_context(run_views[name].lock)
                run_views[name].refresh()
            yield [run_views[name] for name in names]

    def _open(self, name: str) -> RunView:
        """Return a run by name; one that was deleted and created again is opened again."""
        if name not in self.folders.runs:
            self.folders.rescan()
        path = self.folders.runs.get(name)
        if path is None:
            raise RecordError(f"there is no run {name[:200]} under {self.folders.root}")
        with self._lock:
            if name not in self._opened or self._opened[name].identity != run_identity(path):
                self._opened[name] = open_view(name, path, self.folders.root)
            self._opened.move_to_end(name)
            if len(self._opened) > MAX_OPEN_RUNS:
                self._opened.popitem(last=False)
            return self._opened[name]


def open_view(name: str, path: Path, root: Path) -> RunView:
    """Return a run, or a trace, below the folder of the board."""
    return TraceView(name, path, root) if has_trace(path) else RunView(name, IncrementalReader(path), root)
