"""The environment variables that a task names, filled from the trainer's."""

import re
from collections.abc import Mapping

from truing.errors import RecipeError

TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
"""``${NAME}`` or ``${NAME:-default}``, as the whole value."""


def filled_variables(variables: Mapping[str, str], trainer: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the variables of a table of ``task.toml``.

    Raises:
        RecipeError: One needs a variable that the trainer does not have.
    """
    return {name: _value(name, str(value), trainer, where) for name, value in variables.items()}


def _value(name: str, value: str, trainer: Mapping[str, str], where: str) -> str:
    found = TEMPLATE.fullmatch(value)
    if found is None:
        return value
    if found[1] not in trainer and found[2] is None:
        raise RecipeError(
            f"{where} needs a variable that is not set",
            got=f"{name} = {value!r}",
            expected=f"{found[1]} in the environment that truing is run in",
        )
    return trainer.get(found[1], found[2])
