"""Kills this process at its n-th write to a folder, or lets writes fail from there on."""

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from truing.distributed import shard_files
from truing.utils import atomic_files, jsonl

NAMED = {
    "os.rename": "rename",
    "os.remove": "remove",
    "os.rmdir": "remove a folder",
    "os.mkdir": "make a folder",
}
"""Audit events of Python that change a folder, and what tables call them."""

FAILURES = {"full": errno.ENOSPC, "read-only": errno.EROFS}
"""Errors of writes from the n-th on; a full disk lets files be removed."""


class Plan(NamedTuple):
    """What happens at which write; 0 is none."""

    at: int = 0
    effect: str = "kill"  # or one of ``FAILURES``


class WritePoints:
    """Counts opening, writing, syncing, renaming and removing under a folder; kills or fails at the n-th.

    https://docs.python.org/3/library/audit_events.html tells of most; the others are wrapped. It cannot be
    undone, so it is for processes that end.
    """

    def __init__(self, folder: Path, plan: Plan, on_reached: Callable[[str], None]) -> None:
        self.folder, self.plan, self.on_reached, self.count = str(folder), plan, on_reached, 0

    def install(self) -> None:
        """Count from now on."""
        sys.addaudithook(self._audit)
        sync, write_all, save_file = os.fsync, atomic_files.write_all, shard_files.save_file

        def counted_sync(descriptor: int) -> None:
            self.point("sync")
            sync(descriptor)

        def counted_write(handle: BinaryIO, data: bytes) -> None:
            self.point("half a write", lambda: handle.write(data[: len(data) // 2]))
            write_all(handle, data)
            self.point("write")

        def counted_save(tensors: Any, path: Path, *options: Any) -> None:
            save_file(tensors, path, *options)
            self.point("half a file of tensors", lambda: os.truncate(path, path.stat().st_size // 2))

        os.fsync = counted_sync
        atomic_files.write_all = jsonl.write_all = counted_write
        shard_files.save_file = counted_save

    def point(self, name: str, before_kill: Callable[[], object] = lambda: None) -> None:
        """Count one write; if it is the n-th, do ``before_kill`` and end, or fail."""
        self.count += 1
        if self.count == self.plan.at:
            self.on_reached(name)
        failure = FAILURES.get(self.plan.effect)
        if failure and self.count >= self.plan.at > 0:
            if failure == errno.EROFS or not name.startswith("remove"):
                raise OSError(failure, os.strerror(failure))
        elif self.count == self.plan.at:
            before_kill()
            os.kill(os.getpid(), signal.SIGKILL)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self._is_inside(arguments[0]) and _writes(*arguments[1:]):
            self.point("open")
        elif event in NAMED and (_is_relative(arguments) or self._is_inside(arguments[0])):
            self.point(NAMED[event])

    def _is_inside(self, path: object) -> bool:
        return isinstance(path, str | Path) and str(path).startswith(self.folder)


def _writes(mode: str | None, flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) or bool(mode and set(mode) & set("wax+"))


def _is_relative(arguments: tuple[Any, ...]) -> bool:
    """Whether a path is relative to an open folder, as in ``shutil.rmtree``."""
    return isinstance(arguments[-1], int) and arguments[-1] >= 0 and not os.path.isabs(arguments[0])
