"""Parameters of which the first few run by default, and the others with ``make test-full``."""

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, params: Iterable[Any]) -> list[Any]:
    """The same parameters; those behind the first ``count`` are marked slow."""
    return [each if i < count else _slow(each) for i, each in enumerate(params)]


def _slow(param: Any) -> Any:
    values = param if isinstance(param, tuple) else (param,)
    return pytest.param(*values, marks=pytest.mark.slow)
