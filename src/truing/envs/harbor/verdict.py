"""The rewards that the tests of a task wrote."""

import math
import reprlib
from pathlib import Path

from truing.errors import ProgramError
from truing.utils.parse import parse_finite_json
from truing.utils.regular_files import read_regular, read_regular_text


def read_rewards(folder: Path, name: str) -> dict[str, float]:
    """Return the rewards by name: of ``reward.json``, or else of ``reward.txt``, whose one is ``reward``.

    Args:
        folder: where the tests wrote.
        name: of the task, for errors.

    Raises:
        ProgramError: There is no file, or it has no finite numbers.
    """
    table, number = folder / "reward.json", folder / "reward.txt"
    try:
        if table.exists():
            rewards = parse_finite_json(read_regular(table))
        else:
            rewards = {"reward": float(read_regular_text(number))}
    except (OSError, ValueError) as error:
        raise ProgramError(
            f"the tests of task {name!r} gave no reward",
            got=f"{error}".replace(f"{folder}/", ""),
            expected="a number in /logs/verifier/reward.txt, or names and numbers in reward.json",
        ) from error
    if not isinstance(rewards, dict) or not all(_is_number(value) for value in rewards.values()):
        raise ProgramError(
            f"the tests of task {name!r} gave no number as a reward",
            got=reprlib.repr(rewards),
            expected="finite numbers by name",
        )
    return {str(key): float(value) for key, value in rewards.items()}


def _is_number(value: object) -> bool:
    """Whether a value of JSON is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)
