"""Files of ``torch.save`` from elsewhere: how they begin, and their content; none of it is run."""

import pickle
import pickletools
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import torch

from truing.errors import RecordError
from truing.utils.format import shorten
from truing.utils.parse import MALFORMED

HEAD = 1024
"""Bytes of a pickle that have its first keys."""

BROKEN = (*MALFORMED, RuntimeError, EOFError, OSError, pickle.UnpicklingError, zipfile.BadZipFile)
"""What torch raises on a damaged file."""


def begin_of(path: Path) -> tuple[list[str], int]:
    """Return the first texts of a file, and its ``rollout_id``, by the codes of its pickle; none is run."""
    keys, step = list[str](), -1
    with zipfile.ZipFile(path) as archive:
        names = [each for each in archive.namelist() if each.endswith("/data.pkl")]
        begin = archive.open(names[0]).read(HEAD) if names else b""
    with suppress(ValueError):  # the bytes end within a code
        for code, value, _ in pickletools.genops(begin):
            if isinstance(value, str):
                keys.append(value)
            elif code.name.startswith("BININT") and keys[-1:] == ["rollout_id"] and step < 0:
                step = int(value or 0)
    return keys, step


def load(file: Path | IO[bytes], where: str) -> Any:
    """Return the content of a file; a RecordError names the class that it may not have."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except BROKEN as error:
        # torch says among other things which class it refuses, and advises to run it
        refused = re.search(r"Unsupported \S+ \S+ \S+", str(error))
        got = refused[0] if refused else str(error) or type(error).__name__
        raise RecordError(
            f"{where} cannot be read",
            got=shorten(got),
            expected="a file of torch.save with tensors, numbers, texts, lists and mappings alone",
        ) from error
