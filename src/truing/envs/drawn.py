"""Questions drawn one after the other: each once, and each on one side of the split for ever."""

from collections.abc import Callable
from typing import TypeVar

from truing.envs.base import Split, share_of
from truing.errors import DataError

T = TypeVar("T")

EVAL_SHARE = 0.25
"""Share of all possible questions of a kind that are kept for evaluation."""

ATTEMPTS = 1000
"""So many draws in a row without a new question mean that there are none left."""


def distinct(
    draw: Callable[[int], tuple[str, T]], split: Split, wanted: int, seed: int, kind: str
) -> list[tuple[str, T]]:
    """The first ``wanted`` of ``draw(0), draw(1), …`` that the seed keeps for a split, each text once.

    The side hangs on seed, kind and text alone: asking for more questions moves none across.

    Args:
        draw: The question of an attempt: its text, and what else is known of it.
        split: The side.
        wanted: How many.
        seed: Another seed keeps other questions for evaluation.
        kind: The questions' kind, as errors name it.

    Raises:
        DataError: There are not so many.
    """
    found: dict[str, T] = {}
    attempt = last_new = 0
    while len(found) < wanted:
        if attempt - last_new > ATTEMPTS:
            raise DataError(
                f"there are not enough different {kind!r} questions for {split}",
                got=f"{len(found)} questions",
                expected=f"{wanted}",
                remedy=f"lower env.{split}, or make the questions more varied",
            )
        text, known = draw(attempt)
        attempt += 1
        for_eval = share_of("split", seed, kind, text) < EVAL_SHARE
        if for_eval == (split == "eval") and text not in found:
            found[text] = known
            last_new = attempt
    return list(found.items())
