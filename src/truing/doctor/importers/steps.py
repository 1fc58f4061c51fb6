"""A log as steps of the doctor: our names, one step per record, and the unused rest."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise

from truing.doctor.evidence import Setup, Step
from truing.doctor.history import History
from truing.doctor.importers.beside_steps import epochs_of, evaluations_of
from truing.doctor.importers.left_out import drop_filled, not_numbers, usable_points
from truing.doctor.importers.log import Log, Point
from truing.doctor.importers.metric_names import close_names, ours_of, trainer_of, without_prefix
from truing.doctor.importers.setup import changed_meanings, config_names, setup_of
from truing.doctor.importers.trainer_names import PLAIN, TRAINERS, Trainer
from truing.doctor.importers.unused_columns import NOT_OF_STEPS, why_unused
from truing.doctor.importers.verl_dumps import reward_metrics
from truing.doctor.rules.opt015 import must_be_finite
from truing.errors import RecordError
from truing.types.passes import Passes
from truing.types.step_table import StepTable

STAGE = "train"
"""A foreign log is one stage."""


@dataclass(frozen=True)
class ImportedRun:
    """A foreign run, and the known and unknown parts of its log."""

    format: str
    trainer: str
    steps: Sequence[Step]
    matched: Mapping[str, str]  # theirs → ours
    unused: Mapping[str, str]  # known names without a rule → the reason
    unknown: Sequence[str]  # unknown names
    changed_meanings: Mapping[str, str]  # theirs → its meaning in this run
    suggestions: Mapping[str, str]  # unknown name → similar name of ours
    notes: Sequence[str] = ()  # on the order of the log
    evaluations: Mapping[str, Mapping[int, float]] = field(
        default_factory=dict[str, Mapping[int, float]]
    )  # scores of held-out tasks, by name and step
    epochs: Mapping[str, float] = field(default_factory=dict[str, float])  # passes over the prompts, by name

    @property
    def has_answers(self) -> bool:
        """Return whether the run has rollouts."""
        return any(step.samples for step in self.steps)


def import_run(log: Log) -> ImportedRun:
    """Return the steps of a log, each with the earlier ones; numbers of steps are those of the log."""
    names = list(dict.fromkeys(without_prefix(name) for point in log.points for name in point.values))
    trainer = trainer_of(set(names))
    other = changed_meanings(trainer, log.config, _largest(log.points))
    read = _read(names, trainer, config_names(trainer, log.config), other)
    if not read and not log.rows:
        raise RecordError(
            f"no metric of {log.format} is known",
            got=", ".join(names[:6]) or "none at all",
            expected=f"metrics of {', '.join(each.name for each in TRAINERS)}, or `truing explain metrics`",
            remedy=suggestion_text(close_names(names, {}))
            or "rename columns to the names of the same quantities in `truing explain metrics`",
        )
    points, notes = usable_points(log.points, read)
    logged, back = _by_step(points, read)
    if not logged and not log.rows:
        raise RecordError(
            f"no record of {log.format} has a step and a number that is read",
            got="; ".join(notes) or f"{len(log.points)} records",
            expected="a step and a number in each",
            remedy="export the step with the metrics, in full precision",
        )
    numbers = {step: _ours(theirs, read, trainer) for step, theirs in logged.items()}
    filled = drop_filled(numbers, {ours: theirs for theirs, ours in read.items()}, trainer)
    for step, rows in log.rows.items():
        numbers[step] = reward_metrics(rows) | numbers.get(step, {})
    left = [name for name in names if name not in read and name not in other]
    unused = {name: why for name in left if (why := why_unused(trainer.name, name))}
    unread = [name for name in left if name not in unused]
    setup = replace(
        setup_of(trainer, log.config, names),
        logged_every=None if log.steps_counted else steps_per_record(numbers),
        columns={ours: theirs for theirs, ours in read.items() if ours not in trainer.abs_max_of},
    )
    checked = {name for name in left if must_be_finite(name) and unused.get(name) not in NOT_OF_STEPS}
    _add_not_finite(numbers, points, checked)
    return ImportedRun(
        log.format,
        trainer.name,
        _steps(numbers, log, setup),
        read,
        unused,
        unread,
        {name: why for name, why in other.items() if name in names},
        close_names(unread, read) if trainer is PLAIN else {},  # a known trainer's names are exact
        [
            *[COUNTED_NOTE] * log.steps_counted,
            *(*log.notes, *not_numbers(log.unread, read), *notes, *filled, *back),
        ],
        evaluations_of(points),
        epochs_of(points),
    )


COUNTED_NOTE = "the log tells no step: its records are counted, however many steps each is of"


def _add_not_finite(numbers: dict[int, dict[str, float]], points: Sequence[Point], names: Set[str]) -> None:
    """Add the values of columns without a rule that are NaN or infinite, by their own names."""
    for point in points:
        assert point.step is not None
        for name, value in point.values.items():
            if not math.isfinite(value) and without_prefix(name) in names:
                numbers.setdefault(point.step, {})[without_prefix(name)] = value


def steps_per_record(steps: Iterable[int]) -> int:
    """Return the steps per record: the smallest distance of two; 1 for one record."""
    return min((after - before for before, after in pairwise(sorted(steps))), default=1)


def suggestion_text(near: Mapping[str, str]) -> str:
    """Return a question for each name that is close to one of ours."""
    pairs = ", ".join(f"{ours} by {theirs}" for theirs, ours in near.items())
    return f"did you mean {pairs}? Rename equal quantities: `truing explain metrics`" if pairs else ""


def _largest(points: Sequence[Point]) -> dict[str, float]:
    """Return the largest value of each number."""
    largest = dict[str, float]()
    for point in points:
        for name, value in point.values.items():
            largest[without_prefix(name)] = max(value, largest.get(without_prefix(name), value))
    return largest


def _read(
    names: Sequence[str], trainer: Trainer, also: Mapping[str, str], other: Mapping[str, str]
) -> dict[str, str]:
    """Return our name of each name in the log; the first wins for two names of one metric."""
    renamed = dict[str, str]()
    for name in names:
        ours = also.get(name) or ours_of(trainer, name)
        if ours and name not in other and ours not in renamed.values():
            renamed[name] = ours
    for ours, theirs in trainer.abs_max_of.items():
        if all(name in names for name in theirs):
            renamed |= dict.fromkeys(theirs, ours)
    return renamed


def _by_step(
    points: Sequence[Point], read: Mapping[str, str]
) -> tuple[dict[int, dict[str, float]], list[str]]:
    """Return the read numbers of each step, and notes where the log goes back, as after a resumption."""
    series, back = defaultdict[str, dict[int, float]](dict), dict[tuple[int, int], None]()
    for point in points:
        assert point.step is not None
        for name, value in point.values.items():
            if without_prefix(name) not in read:
                continue
            values = series[without_prefix(name)]
            latest = next(reversed(values), point.step)  # steps of a series are in order
            if point.step == latest or _alike(values.get(point.step, math.inf), value):
                _check_same_value(values.setdefault(point.step, value), value, name, point)
            elif point.step > latest:
                values[point.step] = value
            else:
                back[latest, point.step] = None
                series[without_prefix(name)] = {s: x for s, x in values.items() if s < point.step} | {
                    point.step: value
                }
    numbers = defaultdict[int, dict[str, float]](dict)
    for name, values in series.items():
        for step, value in values.items():
            numbers[step][name] = value
    return dict(numbers), [_step_decreased(*each) for each in back]


def _alike(one: float, other: float) -> bool:
    """Return whether two numbers are equal, or both NaN."""
    return one == other or (math.isnan(one) and math.isnan(other))


def _check_same_value(known: float, value: float, name: str, point: Point) -> None:
    """Raise if a step has two records with different numbers."""
    if not _alike(known, value):
        raise RecordError(
            f"step {point.step} is logged twice, with two values of {name}",
            got=f"{known:.6g} and {value:.6g}, the latter in {point.where.rstrip(',')}",
            expected="one value a step",
            remedy="where a run was resumed, cut what came after the checkpoint; else export one run",
        )


def _step_decreased(latest: int, step: int) -> str:
    """Return a note on the order of the log."""
    return f"the log goes back from {latest} to {step}: of a step with two records the later is read"


def _ours(theirs: Mapping[str, float], read: Mapping[str, str], trainer: Trainer) -> dict[str, float]:
    """Return a step's numbers by our names."""
    numbers = {read[name]: value for name, value in theirs.items() if read[name] not in trainer.abs_max_of}
    for ours, names in trainer.abs_max_of.items():
        if all(name in theirs for name in names):
            numbers[ours] = max(abs(theirs[name]) for name in names)
    return numbers


def _steps(numbers: Mapping[int, Mapping[str, float]], log: Log, setup: Setup) -> list[Step]:
    """Return steps in the order of the steps."""
    steps, history = list[Step](), History()
    for step in sorted(numbers):
        rows = log.rows.get(step, ())
        table = StepTable(
            stage=STAGE,
            step=step - 1,  # these trainers, and reports, count from 1
            metrics=numbers[step],
            samples=rows,
            starts=[0] * (len(rows) + 1),  # no tokens
            streams={},
            passes=Passes.one_each(len(rows), {}),
        )
        steps.append(Step.of(table, setup, history))
        history.add(table)
    return steps
