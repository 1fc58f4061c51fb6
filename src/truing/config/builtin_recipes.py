"""Built-in recipes, found by name from any folder and in an installed package."""

import difflib
from pathlib import Path

from truing.errors import RecipeError

FOLDER = Path(__file__).parents[1] / "recipes"


def builtin_recipe_names() -> list[str]:
    """Return the names of the built-in recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def is_builtin_recipe(target: str | Path) -> bool:
    """Whether an argument is a built-in recipe; an existing path of that name takes precedence."""
    return str(target) in builtin_recipe_names() and not Path(target).exists()


def recipe_path(name_or_path: str | Path) -> Path:
    """Return a recipe's file: the path itself, or the built-in recipe of a bare name without a file.

    Raises:
        RecipeError: Neither a file nor a built-in recipe has this bare name.
    """
    path = Path(name_or_path)
    if path.is_file() or path.suffix or len(path.parts) != 1:
        return path
    if str(path) not in builtin_recipe_names():  # a folder is not a recipe, so it does not hide one
        similar = difflib.get_close_matches(str(path), builtin_recipe_names(), n=1)
        raise RecipeError(
            f"there is no recipe {str(path)!r}",
            got="a name without a suffix, and no such file in this folder",
            expected=f"a TOML file, or one of {', '.join(builtin_recipe_names())}",
            remedy=f"did you mean {similar[0]}?" if similar else "give the path of the file, with its .toml",
        )
    return FOLDER / f"{path}.toml"
