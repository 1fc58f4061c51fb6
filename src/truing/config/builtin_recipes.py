"""Built-in recipes, found by name from any folder and in an installed package."""

import difflib
from pathlib import Path

from truing.errors import RecipeError
from truing.utils import repository

FOLDER = Path(__file__).parents[1] / "recipes"


def builtin_recipe_names() -> list[str]:
    """Return the names of the built-in recipes."""
    return sorted(_files())


def _files() -> dict[str, Path]:
    """Return the built-in recipes by name; in a clone also those in folders that have an environment."""
    files = {path.stem: path for path in FOLDER.glob("*.toml")}
    if repository.in_clone():
        for env in (repository.REPOSITORY / "recipes").glob("*/env.py"):
            for path in env.parent.glob("*.toml"):
                files[env.parent.name if path.stem == "recipe" else path.stem] = path
    return files


def is_builtin_recipe(target: str | Path) -> bool:
    """Whether an argument is a built-in recipe; an existing path of that name takes precedence."""
    return str(target) in builtin_recipe_names() and not Path(target).exists()


def recipe_path(name_or_path: str | Path) -> Path:
    """Return a recipe's file: the path itself, or the built-in recipe of a bare name without a file.

    Raises:
        RecipeError: There is neither a file nor a built-in recipe; the error names the nearest built-in one.
    """
    path, names = Path(name_or_path), builtin_recipe_names()
    is_bare = not path.suffix and len(path.parts) == 1
    if path.is_file() or (path.exists() and not is_bare):  # a folder of a bare name does not hide a recipe
        return path
    if is_bare and str(path) in names:
        return _files()[str(path)]
    similar = difflib.get_close_matches(path.stem, names, n=1)
    raise RecipeError(
        f"there is no recipe {str(path)!r}",
        got="no such file" if path.is_absolute() else f"no such file in {Path.cwd()}",
        expected=f"the path of a TOML file, or a built-in recipe by its name: {', '.join(names)}",
        remedy=f"did you mean the built-in recipe {similar[0]}? Its name is enough: truing train {similar[0]}"
        if similar
        else "give the path of the file, with its .toml",
    )
