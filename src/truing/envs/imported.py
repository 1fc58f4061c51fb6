"""Imports of what a recipe names as ``module:name``."""

import sys
from importlib import import_module
from typing import Any

from truing.errors import RecipeError
from truing.utils.format import did_you_mean


def import_object(name: str, what: str) -> Any:
    """Return the object named ``module:name``; the module is in the working directory, or installed.

    Args:
        name: as in the recipe.
        what: the kind of object, for the error.

    Raises:
        RecipeError: There is no such module, it raises when it is imported, or it has no such name.
    """
    module_name, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    expected = f"module:name of the {what}, in the working directory or an installed package"
    try:
        module = import_module(module_name)
    except Exception as error:  # the module is user code
        raise RecipeError(
            f"the {what} {name!r} cannot be imported",
            got=f"{type(error).__name__}: {error}",
            expected=expected,
        ) from error
    if not hasattr(module, attribute):
        raise RecipeError(
            f"the {what} {name!r} cannot be imported",
            got=f"{module.__file__ or module_name} has no {attribute!r}",
            expected=expected,
            remedy=did_you_mean(attribute, [each for each in vars(module) if not each.startswith("_")]),
        )
    return getattr(module, attribute)
