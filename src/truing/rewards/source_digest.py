"""A digest of a reward function's source: the same function by name may be another one."""

import functools
import hashlib
import inspect
from typing import Any


def source_digest(function: Any) -> str:
    """Return 16 hex digits of the source of a function, or of a callable object's class.

    An object that calls a function of its user names it as ``source_of``. What the function calls is not in
    it. "" where the source cannot be known, and for a function of Truing, which its version names.
    """
    function = getattr(function, "source_of", function)
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    target = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    if (target.__module__ or "").partition(".")[0] == "truing":
        return ""
    try:
        source = inspect.getsource(target)
    except (OSError, TypeError):  # typed into a console, or not written in Python
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:16]
