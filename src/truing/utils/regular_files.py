"""Opens files of unknown origin: only regular ones, up to a size.

A device never ends, a pipe waits for its writer, and both may stand where a file is expected.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

SMALL = 2**26
"""Bytes of a file that describes something: a recipe, a configuration, a template."""


def open_regular(path: Path, most: int | None = None) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: It is not a regular file, or has more than ``most`` bytes.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would wait
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is a device or a pipe, not a regular file", str(path))
        if most is not None and status.st_size > most:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, more than {most}", str(path))
        return open(handle, "rb")
    except OSError:
        os.close(handle)
        raise


def read_regular(path: Path, most: int | None = SMALL) -> bytes:
    """Return the content of a file; raises the errors of ``open_regular``."""
    with open_regular(path, most) as file:
        return file.read()


def read_regular_text(path: Path, encoding: str = "utf-8", most: int | None = SMALL) -> str:
    """Return the text of a file; a UnicodeDecodeError if it is not in this encoding."""
    return read_regular(path, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
