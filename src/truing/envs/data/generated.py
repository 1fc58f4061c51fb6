"""Generated questions: each occurs once, in a fixed split."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from truing.envs.base import Split, hash_fraction
from truing.errors import DataError
from truing.utils.format import did_you_mean

T = TypeVar("T")

EVAL_SHARE = 0.25
"""Share of all possible questions of a kind reserved for evaluation."""

ATTEMPTS = 1000
"""Consecutive draws without a new question after which none are left."""


def draw_distinct(
    draw: Callable[[int], tuple[str, T]],
    split: Split,
    count: int,
    seed: int,
    kind: str,
    split_key: Callable[[T], Sequence[str]] | None = None,
) -> list[tuple[str, T]]:
    """Return the first ``count`` of ``draw(0), draw(1), …`` in a split, each text once.

    The split depends on seed, kind and text (or ``split_key``) alone: more questions move none across.

    Args:
        draw: Returns the question of a draw: its text, and its data.
        split: The split.
        count: The number of questions.
        seed: Another seed selects other questions for evaluation.
        kind: The questions' kind, for errors.
        split_key: The key of the split, if questions with different texts must be in one split.

    Raises:
        DataError: There are fewer.
    """
    questions: dict[str, T] = {}
    attempt = last_new = 0
    while len(questions) < count:
        if attempt - last_new > ATTEMPTS:
            raise DataError(
                f"there are not enough different {kind!r} questions for {split}",
                got=f"{len(questions)} questions",
                expected=f"{count}",
                remedy=f"lower env.{split}, or make the questions more varied",
            )
        text, known = draw(attempt)
        attempt += 1
        decides = (text,) if split_key is None else split_key(known)
        for_eval = hash_fraction("split", seed, kind, *decides) < EVAL_SHARE
        if for_eval == (split == "eval") and text not in questions:
            questions[text] = known
            last_new = attempt
    return list(questions.items())


def alternate_kinds(
    kinds: Sequence[str], of_kind: Callable[[str, int], Iterable[T]], count: int
) -> tuple[T, ...]:
    """Return ``count`` tasks, rotating among kinds: a b c a b c a."""
    each = math.ceil(count / len(kinds))
    return tuple(chain.from_iterable(zip(*(of_kind(kind, each) for kind in kinds), strict=True)))[:count]


def check_kinds(kinds: tuple[str, ...], table: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of a recipe.

    Raises:
        ValueError: One is unknown, or named twice; the message says what is expected.
    """
    table = list(table)
    unknown = [kind for kind in kinds if kind not in table]
    if unknown:
        hints = (f"unknown kind {kind!r}, {did_you_mean(kind, table)}".rstrip(", ") for kind in unknown)
        raise ValueError(f"some of {', '.join(table)}; {'; '.join(hints)}")
    if len(set(kinds)) < len(kinds):
        raise ValueError("each kind once")
    return kinds
