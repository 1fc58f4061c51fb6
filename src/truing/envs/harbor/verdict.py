"""The rewards that the tests of a task wrote."""

import json
import math
from pathlib import Path

from truing.errors import ProgramError


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
            rewards = json.loads(table.read_text(encoding="utf-8"))
        else:
            rewards = {"reward": float(number.read_text(encoding="utf-8"))}
    except (OSError, ValueError, RecursionError) as error:
        raise ProgramError(
            f"the tests of task {name!r} gave no reward",
            got=f"{error}".replace(f"{folder}/", ""),
            expected="a number in /logs/verifier/reward.txt, or names and numbers in reward.json",
        ) from error
    if not isinstance(rewards, dict) or not all(_is_number(value) for value in rewards.values()):
        raise ProgramError(
            f"the tests of task {name!r} gave no number as a reward",
            got=f"{rewards!r:.200}",
            expected="finite numbers by name",
        )
    return {str(key): float(value) for key, value in rewards.items()}


def _is_number(value: object) -> bool:
    """Whether a value of JSON is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)
