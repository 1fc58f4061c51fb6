"""Resets of TRL's environments: the rollouts of a row begin from one state."""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import numpy as np

from truing.errors import DataError

LOCK = threading.Lock()
"""Python's and NumPy's random numbers are of the whole process, and episodes open in threads."""


def reset_text(environment: Any, task: str, columns: Mapping[str, Any]) -> str:
    """Reset an environment for a task; return the text that it adds to the prompt.

    The global random numbers that ``reset`` draws are the same for all rollouts of the task, so that they
    share a prompt, and a group compares answers rather than the luck of a reset.
    """
    try:
        with LOCK, _random_numbers_of(task):
            text = environment.reset(**columns)
    except Exception as error:
        raise DataError(
            f"reset() of {type(environment).__name__} raised {type(error).__name__}: {error}",
            expected=f"a method that takes the columns {', '.join(columns)}",
            remedy="let it take **kwargs" if isinstance(error, TypeError) else "",
        ) from error
    if text is not None and not isinstance(text, str):
        raise DataError(
            "reset() returned something else than text",
            got=f"{text!r:.100}",
            expected="None, or a text that is appended to the prompt",
        )
    return text or ""


@contextmanager
def _random_numbers_of(task: str) -> Iterator[None]:
    """Draw Python's and NumPy's global random numbers from a key, and restore their state afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    seed = crc32(task.encode())
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
