"""The folder for the weights that an engine publishes; a start removes those of runs that were killed."""

import fcntl
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from truing.errors import EngineError

PREFIX = "truing-weights-"

OWNER = "owner"
"""File that is locked as long as the engine lives, with the name of its machine."""


class WeightsFolder:
    """A new folder within ``parent``, by default the temporary folder."""

    def __init__(self, parent: Path | None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        try:
            parent.mkdir(parents=True, exist_ok=True)
            hidden = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
        except OSError as error:
            raise EngineError(
                "published weights cannot be written",
                got=error,
                expected="a folder that can be written, engine.exchange",
                remedy="set engine.exchange to another folder, or change its permissions",
            ) from error
        remove_abandoned(parent)
        self._owner = (hidden / OWNER).open("w+", encoding="utf-8")
        self._owner.write(socket.gethostname())
        self._owner.flush()
        with suppress(OSError):  # a file system without locks, on which no folder is removed by others
            fcntl.flock(self._owner, fcntl.LOCK_EX)
        self.path = hidden.rename(parent / hidden.name[1:])  # others look at it from here on

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._owner.close()


def remove_abandoned(parent: Path) -> None:
    """Remove the folders whose owner has ended: of this user and this machine alone, which sees the locks."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / OWNER).open(encoding="utf-8") as owner:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if owner.read() == socket.gethostname():
                    shutil.rmtree(folder)
