"""What of a log is not read although its name is known, each with a line for the report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from truing.doctor.importers.log import Point, Unread, short
from truing.doctor.importers.metric_names import without_prefix
from truing.doctor.importers.trainer_names import OPENRLHF, Trainer
from truing.utils.format import with_count

ZERO_MEANS_NONE = ("lr", "grad/norm")
"""Numbers of which an exact 0 says that nothing is trained: one that is printed as 0.000 is unknown."""

NEVER_ZERO = (
    *("entropy/mean", "entropy/sampled", "length/mean", "value/centred_explained_variance"),
    *("kl/any", "kl/weighted_k3", "kl_trained/k1", "kl_trained/k3", "kl_all/k1", "kl_all/k3"),
)
"""Numbers that are exactly 0 in every record only if a trainer fills them in, or prints too few digits."""


def usable_points(points: Sequence[Point], read: Mapping[str, str]) -> tuple[list[Point], list[str]]:
    """Return points with a step, without zeros of rounding, and notes on the others.

    Args:
        points: of a log.
        read: theirs → ours.
    """
    usable, rounded, without_step = list[Point](), Counter[str](), list[str]()
    for point in points:
        if point.step is None:
            without_step += [point.where] * any(without_prefix(name) in read for name in point.values)
            continue
        unknown = {name for name in point.rounded if read.get(without_prefix(name)) in ZERO_MEANS_NONE}
        rounded.update(unknown)
        values = {name: value for name, value in point.values.items() if name not in unknown}
        usable.append(replace(point, values=values))
    notes = [
        f"{short(name)} is printed as 0 with few decimals in {with_count(count, 'record')}: rounded, and read"
        " as not logged"
        for name, count in rounded.items()
    ]
    if without_step:
        lines = with_count(len(without_step), "record has no step", "records have no step")
        notes.append(
            f"{lines} and {_is(len(without_step))} skipped (the first: {without_step[0].rstrip(',')})"
        )
    return usable, notes


def drop_filled(
    numbers: Mapping[int, dict[str, float]], columns: Mapping[str, str], trainer: Trainer
) -> list[str]:
    """Remove numbers that are 0 in every record, where no measured number is; return a note on each.

    OpenRLHF logs a gradient norm of 0 if its engine reports none. A deviation of rewards that is always 0
    contradicts a mean with many values.

    Args:
        numbers: by step and our names.
        columns: ours → theirs.
        trainer: whose they are.
    """
    names = [*NEVER_ZERO, *["grad/norm"] * (trainer is OPENRLHF)]
    if len({each.get("reward/mean", 0.0) for each in numbers.values()}) > 2:
        names += ["reward/any_std", "reward/std"]
    notes = []
    for name in names:
        values = [each[name] for each in numbers.values() if name in each]
        if len(values) < 2 or any(values):
            continue
        for each in numbers.values():
            each.pop(name, None)
        notes.append(
            f"{columns.get(name, name)} is 0 in all of {with_count(len(values), 'record')}: filled in, or"
            " rounded; read as not logged"
        )
    return notes


def not_numbers(unread: Mapping[str, Unread], read: Mapping[str, str]) -> list[str]:
    """Return a note on each name in use that has values which are not numbers."""
    return [
        f"{short(name)}: {with_count(each.count, 'value is not a number', 'values are not numbers')}, such as"
        f" {each.example}, and {_is(each.count)} read as not logged (the first: {each.where.rstrip(',')})"
        for name, each in unread.items()
        if without_prefix(name) in read
    ]


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
