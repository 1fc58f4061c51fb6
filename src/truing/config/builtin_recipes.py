"""Recipes that come along: a bare name stands for one, from any folder and in an installed package."""

import difflib
from pathlib import Path

from truing.errors import RecipeError

FOLDER = Path(__file__).parents[1] / "recipes"


def builtin_recipe_names() -> list[str]:
    """The names of the recipes that come along."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def is_builtin_recipe(target: str | Path) -> bool:
    """Whether a word on the command line is an embedded recipe: what lies in the way of it wins."""
    return str(target) in builtin_recipe_names() and not Path(target).exists()


def recipe_path(name_or_path: str | Path) -> Path:
    """The file that is meant: the path as it is, or the embedded recipe where it is a bare name of none.

    Raises:
        RecipeError: A bare name, and neither a file nor an embedded recipe is called so.
    """
    path = Path(name_or_path)
    if path.is_file() or path.suffix or len(path.parts) != 1:
        return path
    if str(path) not in builtin_recipe_names():  # a folder is no recipe, so none is in the way of a name
        near = difflib.get_close_matches(str(path), builtin_recipe_names(), n=1)
        raise RecipeError(
            f"there is no recipe {str(path)!r}",
            got="a name without a suffix, and no such file here",
            expected=f"a TOML file, or one of {', '.join(builtin_recipe_names())}",
            remedy=f"did you mean {near[0]}?" if near else "give the path of the file, with its .toml",
        )
    return FOLDER / f"{path}.toml"
