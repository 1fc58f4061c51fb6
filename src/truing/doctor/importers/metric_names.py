"""Which trainer wrote a log, and which of its numbers are ours."""

import difflib
from collections.abc import Mapping, Sequence, Set
from fnmatch import fnmatchcase

from truing.doctor.importers.trainer_names import GENERIC, PLAIN, TRAINERS, TRANSFORMERS, Trainer
from truing.metrics.aliases import ALIASES
from truing.metrics.definitions import METRICS, is_metric

REWARDS = frozenset(name for name, ours in GENERIC.items() if ours == "reward/mean")
"""A table with one of these is not of supervised fine-tuning."""

PREFIX = "train/"
"""A tracker's prefix of training metrics; evaluations have another one."""


def without_prefix(name: str) -> str:
    """Return a trainer's own name from a tracker's."""
    return name.removeprefix(PREFIX)


def trainer_of(names: Set[str]) -> Trainer:
    """Return the trainer with these names."""
    trainer = next((each for each in TRAINERS if each.signature & names), PLAIN)
    return PLAIN if trainer is TRANSFORMERS and names & REWARDS else trainer


def ours_of(trainer: Trainer, name: str) -> str | None:
    """Return our name of their number; None without one."""
    if trainer is PLAIN and name.lower() in GENERIC:
        return GENERIC[name.lower()]
    if trainer is PLAIN and name in ALIASES:
        return ALIASES[name]
    if name in trainer.names:
        return trainer.names[name]
    patterns = (_named(name, *pair) for pair in trainer.names.items() if fnmatchcase(name, pair[0]))
    return next(patterns, name if is_metric(name) else None)


def _named(name: str, pattern: str, ours: str) -> str:
    """Return our name, in which a star stands for what the pattern's star is in theirs."""
    start, _, end = pattern.partition("*")
    return ours.replace("*", name.removeprefix(start).removesuffix(end))


MIN_SIMILARITY = 0.85
"""Of two spellings of one name: `rewards/mean` and `reward/mean` have 0.96, `reward/max` and it 0.76."""
COMPARED, LONGEST = 500, 100
"""Names that are compared, and their characters: each takes a millisecond."""


def close_names(unread: Sequence[str], read: Mapping[str, str]) -> dict[str, str]:
    """Return unknown names of a plain table, with our metric of a similar spelling.

    Args:
        unread: unknown names.
        read: theirs → ours; a metric already in use is not a suggestion.
    """
    spelt = {_letters(metric.name): metric.name for metric in METRICS if metric.name not in read.values()}
    close = {
        name: difflib.get_close_matches(_letters(name), spelt, n=1, cutoff=MIN_SIMILARITY)
        for name in unread[:COMPARED]
        if len(name) <= LONGEST
    }
    return {name: spelt[matches[0]] for name, matches in close.items() if matches}


def _letters(name: str) -> str:
    """Return a name without its separators."""
    return "".join(letter for letter in without_prefix(name).lower() if letter.isalnum())
