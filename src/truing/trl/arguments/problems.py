"""Collects the arguments that Truing refuses, so that one error names all of them."""

from collections.abc import Collection
from typing import Any

from truing.errors import RecipeError
from truing.trl.arguments.config_base import TrlConfig
from truing.trl.arguments.fields import FIELDS
from truing.utils.format import with_count


class Problems:
    """The refused arguments of a trainer."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, value: Any, reason: str, remedy: str) -> None:
        """Add an argument with its value, why it is refused, and what to do."""
        self._lines.append(f"{name}={value!r:.80}: {reason}; {remedy}")

    def check_choice(self, name: str, value: Any, choices: Collection[Any], reason: str) -> None:
        """Add an argument that has none of the values that it may have."""
        if value not in choices:
            self.add(name, value, reason, f"use {', '.join(map(str, choices))}")

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
                expected="what `truing explain trl` says of each argument",
            )
