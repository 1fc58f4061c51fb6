"""Packages that only some environments need."""

import importlib
from typing import Any

from truing.errors import RecipeError


def import_optional(module: str, extra: str) -> Any:
    """Import and return a module of an optional package.

    Raises:
        RecipeError: It is not installed; the error names the extra of Truing that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RecipeError(
            f"this environment needs the package {module.partition('.')[0]!r}, which cannot be imported",
            got=error,
            remedy=f"pip install truing[{extra}]",
        ) from error
