"""The gain of a stage: the paired difference of the evaluations before it and after it, or so far."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from truing.analysis.current_events import current_evaluations, fork_start, parse_mid_stage_name
from truing.analysis.estimate import Estimate
from truing.analysis.evaluation import Evaluation, read_evaluation
from truing.analysis.intervals import is_significant, student_interval
from truing.analysis.paired_difference import MIN_DIFFERING_TASKS
from truing.errors import DataError
from truing.record import Event


@dataclass(frozen=True)
class StageGain:
    """A paired difference of two evaluations of the same tasks."""

    before: Evaluation
    after: Evaluation
    paired: Estimate
    significant: bool  # at 5 %, by tasks
    differences: Mapping[str, float]  # of each task

    @property
    def is_loss(self) -> bool:
        """Return whether the evaluations prove a loss."""
        return self.significant and self.paired.mean < 0

    @property
    def is_gain(self) -> bool:
        """Return whether the evaluations prove a gain."""
        return self.significant and self.paired.mean > 0

    def is_denied_by(self, second: "StageGain") -> bool:
        """Return whether a second grader sees less than is paid.

        Either a proven gain that it does not see, or its proven loss, and their difference is proven too.
        """
        if second.is_gain or not (self.is_gain or second.is_loss):
            return False
        theirs = second.differences
        gaps = [gain - theirs[task] for task, gain in self.differences.items() if task in theirs]
        return len(gaps) > 1 and student_interval(gaps).low > 0

    def __str__(self) -> str:
        ends = f"{self.before.estimate().mean:.3f} → {self.after.estimate().mean:.3f}"
        verdict = ": a loss" if self.is_loss else ": a gain" if self.is_gain else ""
        return f"{ends}, {self.paired.signed} {self.paired.basis}{verdict}"


def stage_evaluations(stage: str, stages: Sequence[str], events: Iterable[Event]) -> list[Evaluation]:
    """Return the evaluation before a stage, those within it, and the one after it.

    A fork within the stage begins at its checkpoint: of earlier evaluations only the last one counts.

    Args:
        stage: whose.
        stages: of the run, in order.
        events: of the run.
    """
    events = list(events)
    current, start = current_evaluations(events), fork_start(events, stage)
    places = {name: parse_mid_stage_name(name) for name in current}
    within = {name: place[1] for name, place in places.items() if place and place[0] == stage}
    if start:
        before = [name for name, steps in within.items() if steps <= start][-1:]
    else:
        earlier = ["base", *(f"after_{name}" for name in stages[: stages.index(stage)])]
        before = [name for name in earlier if name in current][-1:]
    own = [name for name in current if name == f"after_{stage}" or within.get(name, 0) > start]
    payloads = (current[name] for name in (*before, *own) if current[name].get("reward"))
    return [read_evaluation(each) for each in payloads]


def stage_gain(evaluations: Sequence[Evaluation]) -> StageGain | None:
    """Return the gain of the last evaluation over the first; None unless they have the same tasks."""
    if len(evaluations) < 2:
        return None
    before, after = evaluations[0], evaluations[-1]
    try:
        by_task = after.task_gains(before)
    except DataError:
        return None
    differences = list(by_task.values())
    if len(differences) < 2:
        return None
    paired, differing = after.gain_over(before), sum(each != 0 for each in differences)
    significant = differing >= MIN_DIFFERING_TASKS and is_significant(paired, differences)
    return StageGain(before, after, paired, significant, by_task)
