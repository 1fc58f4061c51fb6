"""Collects the arguments that Truing refuses, so that one error names all of them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from truing.errors import RecipeError, RecordError
from truing.trl.arguments.config_base import TrlConfig
from truing.trl.arguments.configs import CONFIG_DEFAULTS
from truing.trl.arguments.fields import FIELDS, arguments_of
from truing.utils.format import with_count


class Problems:
    """The refused arguments of a trainer."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, value: Any, reason: str, remedy: str) -> None:
        """Add an argument with its value, why it is refused, and what to do."""
        self._lines.append(f"{name}={value!r:.80}: {reason}; {remedy}")

    def add_refused(self, args: TrlConfig) -> None:
        """Add the arguments of a config that the table refuses."""
        for name, value in args.changed().items():
            answer = FIELDS[name]
            if answer.kind == "refused" and value not in answer.accepted:
                self.add(name, value, answer.text, "leave it out")

    def raise_if_any(self, trainer: str) -> None:
        """Raise one error with all arguments."""
        if self._lines:
            raise RecipeError(
                f"truing.trl.{trainer} refuses {with_count(len(self._lines), 'argument')}:\n    "
                + "\n    ".join(self._lines),
                expected="what docs/trl.md says of each argument",
            )


@contextmanager
def naming_arguments(config: str) -> Iterator[None]:
    """Name TRL's arguments in an error that names the recipe key which they became."""
    try:
        yield
    except (RecipeError, RecordError) as error:
        key = re.match(r"recipe key '([\w.]+)'", error.what)
        names = [name for name in arguments_of(key[1]) if name in CONFIG_DEFAULTS[config]] if key else []
        if not names:
            raise
        what = error.what.replace(key[0], f"{config}: {' or '.join(names)} ({key[0]})") if key else ""
        raise type(error)(what, got=error.got, expected=error.expected, remedy=error.remedy) from None
