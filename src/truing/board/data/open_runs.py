"""Runs that are held open while somebody looks at them, each for one reader at a time."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from truing.board.data.discovery import Places
from truing.board.data.malformed import telling
from truing.board.data.run_view import Opened, identity
from truing.errors import RecordError

MOST = 24
"""Runs that are held at once; the one that was not asked for longest goes."""


class Held:
    """Runs by name, as ``places`` knows them."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def reading(self, *names: str) -> Iterator[list[Opened]]:
        """Runs as they are now. Of several, every thread takes them in one order: none waits forever."""
        found = {name: self._open(name) for name in names}
        with telling(" and ".join(names)), ExitStack() as stack:
            for name in sorted(found):
                stack.enter_context(found[name].lock)
                found[name].refresh()
            yield [found[name] for name in names]

    def _open(self, name: str) -> Opened:
        """A run by its name; one that was removed and made anew under its name is another run."""
        if name not in self.places.runs:
            self.places.look()
        path = self.places.runs.get(name)
        if path is None:
            raise RecordError(f"there is no run {name[:200]} under {self.places.root}")
        with self._lock:
            if name not in self._opened or self._opened[name].identity != identity(path):
                self._opened[name] = Opened(name, path, self.places.root)
            self._opened.move_to_end(name)
            if len(self._opened) > MOST:
                self._opened.popitem(last=False)
            return self._opened[name]
