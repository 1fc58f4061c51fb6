"""Two hypotheses together: whether one arm still helps if the other's is in place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from truing.errors import LabError
from truing.lab.report.numbers import nan_to_none
from truing.lab.run.design import Arm, Job, baseline_changes, interaction_arms, missing_jobs
from truing.lab.run.runner import PendingJobs
from truing.lab.stats import e_process
from truing.lab.stats.difference_bounds import declared_within, within_of
from truing.lab.stats.pairs import failed_runs, pairs_of
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import Declaration, Ledger


@dataclass(frozen=True)
class Contrast:
    """An effect in the 2 × 2, with bounds that hold for all five effects at once."""

    name: str
    effect: float
    low: float
    high: float
    pairs: int
    error: float  # the probability that any bound of the five is wrong
    within: float | None  # bound on a pair's effect; None if unknown: the bets are on signs

    def facts(self) -> dict[str, Any]:
        """Return the JSON form: null for unknown values."""
        return nan_to_none(asdict(self))


def declare_interaction(lab: Lab, hypothesis: Hypothesis, other: Hypothesis, ledger: Ledger) -> Lab:
    """Declare the four arms, unless they are declared."""
    name = interaction_id(hypothesis, other)
    if lab.history.entries_of(Declaration, name):
        return lab
    arms_by_label = interaction_arms(lab, hypothesis, other)
    arms = {label: arm.digest for label, arm in arms_by_label.items()}
    header = hypothesis.header.model_dump(mode="json")
    title = f"{hypothesis.title} × {other.title}"
    entry = Declaration(name, title, header, baseline_changes(lab), arms, lab.error_share(hypothesis))
    entry = replace(entry, within=declared_within(hypothesis.header, arms_by_label.values()))
    return lab.with_entry(ledger.write(entry))


def interaction_id(hypothesis: Hypothesis, other: Hypothesis) -> str:
    """Return the name of the 2 × 2 in the ledger."""
    return f"{hypothesis.id}+{other.id}"


def pending_interaction_jobs(hypothesis: Hypothesis, other: Hypothesis) -> PendingJobs:
    """Return a function that lists missing runs, until the interaction is significant or seeds end."""

    def missing(lab: Lab) -> list[Job]:
        declaration = lab.history.entries_of(Declaration, interaction_id(hypothesis, other))[0]
        last = contrasts(lab, hypothesis, other)[-1]
        if last.low > 0 or last.high < 0 or failed_runs(lab.history, declaration.arms):
            return []
        base, *arms = declared_interaction_arms(lab, hypothesis, other).values()
        return missing_jobs(lab, base, arms, hypothesis.header.seed_range)

    return missing


def contrasts(lab: Lab, hypothesis: Hypothesis, other: Hypothesis) -> list[Contrast]:
    """Return the effects of each arm alone, of each with the other in place, and the interaction last."""
    first, second, joint = _differences(lab, hypothesis, other)
    within = _bound_within(lab, hypothesis, other)
    double = None if within is None else 2 * within  # of two differences of runs
    effects = {
        f"{hypothesis.id} alone": (first, within),
        f"{other.id} alone": (second, within),
        f"{hypothesis.id}, with {other.id} in place": (joint - second, within),
        f"{other.id}, with {hypothesis.id} in place": (joint - first, within),
        f"interaction of {hypothesis.id} and {other.id}": (joint - first - second, double),
    }
    error = lab.error_share(hypothesis)
    share = error / (2 * len(effects))  # each has two bounds
    return [
        Contrast(
            name,
            float(data.mean()) if len(data) else math.nan,
            e_process.lower_bound(data, share, bound),
            e_process.upper_bound(data, share, bound),
            len(data),
            error,
            bound,
        )
        for name, (data, bound) in effects.items()
    ]


def _bound_within(lab: Lab, hypothesis: Hypothesis, other: Hypothesis) -> float | None:
    """Return the declared bound on a difference of two of the four runs."""
    declaration = next(iter(lab.history.entries_of(Declaration, interaction_id(hypothesis, other))), None)
    return within_of(hypothesis.header, declaration).get(hypothesis.header.metric)


def _differences(lab: Lab, hypothesis: Hypothesis, other: Hypothesis) -> Sequence[np.ndarray]:
    """Return the differences of three arms to the baseline, for the seeds that all have."""
    base, *arms = (arm.digest for arm in declared_interaction_arms(lab, hypothesis, other).values())
    pairs = [pairs_of(lab.history, base, arm, hypothesis.header.seed_range) for arm in arms]
    shared = min(map(len, pairs))
    metric = hypothesis.header.metric
    why_not = next(filter(None, (pair.why_not_comparable([metric]) for each in pairs for pair in each)), "")
    if why_not:
        raise LabError(f"{hypothesis.id} and {other.id} cannot be compared", got=why_not)
    return [np.asarray([pair.difference(metric) for pair in each[:shared]]) for each in pairs]


def declared_interaction_arms(lab: Lab, hypothesis: Hypothesis, other: Hypothesis) -> Mapping[str, Arm]:
    """Return the four arms as they were declared."""
    declaration = next(iter(lab.history.entries_of(Declaration, interaction_id(hypothesis, other))), None)
    arms = interaction_arms(lab, hypothesis, other, declaration.baseline if declaration else None)
    if declaration and {label: arm.digest for label, arm in arms.items()} != dict(declaration.arms):
        raise LabError(
            f"{hypothesis.id} and {other.id} differ from the declaration of their 2 × 2",
            expected="; ".join(declaration.arms),
            remedy="restore their arms and the recipe; the runs of single arms stay valid",
        )
    return arms


def failed_run_texts(lab: Lab, hypothesis: Hypothesis, other: Hypothesis) -> list[str]:
    """Return the failed runs of the 2 × 2 as text."""
    declaration = next(iter(lab.history.entries_of(Declaration, interaction_id(hypothesis, other))), None)
    failed = failed_runs(lab.history, declaration.arms) if declaration else []
    return [f"{run.label}, seed {run.seed}, {run.outcome}: {run.error}" for run in failed]
