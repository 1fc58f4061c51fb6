"""Imports of what a recipe names as ``module:name`` or ``path.py:name``."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from truing.errors import RecipeError
from truing.utils import repository
from truing.utils.format import did_you_mean


def import_object(name: str, what: str) -> Any:
    """Return the object named ``module:name`` or ``path.py:name``.

    A module is in the working directory, or installed. A path is relative to the working directory or, in a
    clone of Truing, to the repository; files of its folder are imported as ``from .other import …``.

    Args:
        name: as in the recipe.
        what: the kind of object, for the error.

    Raises:
        RecipeError: There is no such module, it raises when it is imported, or it has no such name.
    """
    module_name, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    expected = f"module:name or path.py:name of the {what}, in the working directory or an installed package"
    try:
        module = import_module(_module_of(Path(module_name)) if module_name.endswith(".py") else module_name)
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


def _module_of(file: Path) -> str:
    """Return the module's name of a file, which can be imported then; its folder is its package."""
    roots = [Path.cwd(), *([repository.REPOSITORY] if repository.in_clone() else [])]
    root = next((root for root in roots if (root / file).is_file()), None)
    if root is None:
        raise FileNotFoundError(f"no file {file} in {Path.cwd()}")
    path = (root / file).resolve()
    if not path.is_relative_to(root):
        root = path.parents[1]
    if str(root) not in sys.path:
        sys.path.append(str(root))
    return ".".join(path.relative_to(root).with_suffix("").parts)
