"""What proves and measures Truing itself is in ``dev/`` of its repository, which the wheel does not have."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from truing.errors import TruingError
from truing.utils.repository import REPOSITORY, in_clone


def from_clone(module: str, name: str) -> Any | None:
    """Return an object of a module of ``dev/``; None without a clone."""
    if not in_clone():
        return None
    if str(REPOSITORY) not in sys.path:
        sys.path.append(str(REPOSITORY))
    return getattr(import_module(f"dev.{module}"), name)


def command_of_clone(module: str, name: str) -> Callable[..., None] | typer.Typer:
    """Return a command of ``dev/``; without a clone, one that says where it is."""
    return from_clone(module, name) or _absent(name)


def _absent(name: str) -> Callable[..., None]:
    def command(_words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        """Measure Truing itself; in a clone of the repository only."""
        raise TruingError(
            f"`truing {name}` needs a clone of Truing's repository",
            got="an installed package, which has no dev/",
            remedy="clone the repository, and run `make install` there",
        )

    return command
