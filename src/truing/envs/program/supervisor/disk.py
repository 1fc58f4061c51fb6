"""What a workspace has on disk, without recursion, and without following links.

It uses the standard library alone: the supervisor imports it outside of the package.
"""

import errno
import os
import time
from collections.abc import Iterator

STEP, PAUSE = 0.005, 0.5
"""Seconds of a part of a look at the disk, and between two looks."""


class Disk:
    """The bytes on disk below a folder, which are counted again and again, a part at each call."""

    def __init__(self, folder: str, most: int) -> None:
        self._folder, self._most = folder, most
        self._look, self._total, self._next = entries(folder), 0, 0.0

    def exceeded(self, seconds: float = STEP) -> str | None:
        """Count on for some seconds; return the limit that is exceeded, None if none is so far."""
        began = time.monotonic()
        if began < self._next:
            return None
        try:
            for _, status in self._look:
                self._total += status.st_blocks * 512
                if self._total > self._most:
                    return "max_disk"
                if time.monotonic() > began + seconds:
                    return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return "long_paths"
        self._look, self._total, self._next = entries(self._folder), 0, time.monotonic() + PAUSE
        return None


def entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what is below a folder: its path from there, and what ``lstat`` says of it.

    Raises:
        OSError: The folder is none, or a folder below it has a path that is too long for the system.
    """
    ahead = [""]
    while ahead:
        path = ahead.pop()
        try:
            handle = os.open(os.path.join(folder, path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            if not path or error.errno == errno.ENAMETOOLONG:
                raise
            continue  # deleted since, or not readable
        try:
            with os.scandir(handle) as found:
                for entry in found:
                    name = os.path.join(path, entry.name)
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:  # deleted since
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        ahead.append(name)
                    yield name, status
        finally:
            os.close(handle)
