"""What a process gets of an environment: how to make it again, or its pickle.

An environment of a recipe is made again from its keys, so it may hold connections and locks. Own objects,
functions and tools are pickled by the name of their module, so that name must lead to them.
"""

import io
import pickle
from importlib import import_module
from typing import Any

from truing.envs import env_arguments, make_env
from truing.envs.base import Env
from truing.envs.tools import Tool
from truing.envs.wrappers import original_env
from truing.errors import RecipeError

THREADS = "leave out episode.processes, to run it in threads"


def env_copy(env: Env) -> bytes:
    """Return an environment as bytes for ``pickle.loads`` in another process.

    Raises:
        RecipeError: A part of it cannot be pickled; the error names the part.
    """
    original = original_env(env)
    for name, (function, _) in env.rewards.items():
        if env_arguments(original) is None:
            pickled(function, f"reward {name!r}")
    for tool in getattr(original, "tools", ()):
        if isinstance(tool, Tool):
            pickled(tool, f"tool {tool.spec.name!r}")
    return pickled(original, f"environment {type(original).__qualname__}")


class _Pickler(pickle.Pickler):
    """Pickles environments of recipes by their keys, and tools by their names."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to make an object again; NotImplemented for all other objects."""
        if (made := env_arguments(obj)) is not None:
            return make_env, made, getattr(obj, "state_of_copies", None)
        if isinstance(obj, Tool):
            module, name = obj.function.__module__, obj.function.__qualname__
            if _find(module, name) is not obj:
                raise pickle.PicklingError(f"{module}.{name} is not the tool")
            return _find, (module, name)
        return NotImplemented


def _find(module: str, name: str) -> Any:
    """Return an object of a module by its qualified name; None if there is none."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def pickled(value: Any, name: str) -> bytes:
    """Return a value as bytes."""
    written = io.BytesIO()
    try:
        _Pickler(written).dump(value)
    except Exception as error:
        raise RecipeError(
            f"episode.processes = true, but {name} cannot be sent to a process",
            got=f"{type(error).__name__}: {error}",
            expected="classes, functions and tools at the top of a module, without locks and connections",
            remedy=f"define it at the top of a module, or name it in the recipe (env.name); or {THREADS}",
        ) from error
    return written.getvalue()
