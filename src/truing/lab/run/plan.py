"""The plan: open steps by expected information per minute, and whether each can decide."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truing.errors import TruingError
from truing.lab.report.numbers import nan_to_none
from truing.lab.run.design import BASELINE, arms_of, baseline_changes, missing_jobs, resolve_arm
from truing.lab.stats.difference_bounds import within_of
from truing.lab.stats.noise import Noise, assumed_noise, noise_of
from truing.lab.stats.power import information, min_detectable_excess
from truing.lab.stats.sensitivity import min_detectable_effect, power_at_smallest_effect, why_underpowered
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Declaration, Run
from truing.lab.verdicts.criteria import Within
from truing.lab.verdicts.verdict import judge

CHECK_MINUTES = 1.0
"""Minutes of a check before the first one: two updates of each stage, and loading the model."""

NARROWING_POWER = 0.5
"""The power of a check that cannot settle a claim by itself."""


@dataclass(frozen=True)
class PlanStep:
    """An open check or experiment."""

    hypothesis: Hypothesis
    kind: str  # check, experiment
    probability: float
    information: float  # bits
    minutes: float  # NaN if unknown
    runs: int  # remaining
    mde: float = math.nan
    noise: Noise | None = None
    refused: str = ""  # why it cannot decide
    would: str = ""  # what would help
    waits_for: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """Return the JSON form: null for unknown values."""
        facts = {name: value for name, value in vars(self).items() if name not in ("hypothesis", "noise")}
        noise = {"noise": self.noise.source} if self.noise else {}
        return nan_to_none({"hypothesis": self.hypothesis.id, "score": self.score} | facts | noise)

    @property
    def score(self) -> float:
        """Probability × information per minute; per run if the minutes are unknown."""
        cost = self.minutes if math.isfinite(self.minutes) else self.runs
        return self.probability * self.information / max(cost, 1e-3)


def plan(lab: Lab, jobs: int = 1) -> list[PlanStep]:
    """Return every open step, best first, after its prerequisites; steps that cannot decide come last."""
    verdicts = {name: judge(lab, each) for name, each in lab.hypotheses.items()}
    settled = {name for name, verdict in verdicts.items() if verdict.settled}
    unsettled = [each for name, each in lab.hypotheses.items() if name not in settled]
    steps = [step for each in unsettled for step in open_steps(lab, each, jobs)]
    return list(_in_order(steps, settled))


def detectable_effects(lab: Lab) -> Iterator[tuple[str, float, Noise]]:
    """Yield the effects that the baseline's evaluation and last rewards detect with a hypothesis's pairs."""
    first = next((each for each in lab.hypotheses.values() if each.header.arms), None)
    if first is None:
        return
    recipe = resolve_arm(lab, BASELINE, baseline_changes(lab)).recipe
    for metric in ("eval/reward", "reward/mean"):
        noise = assumed_noise(recipe, metric)
        within = within_of(first.header.model_copy(update={"metric": metric}), None)[metric]
        effect = min_detectable_excess(
            noise.deviation, first.header.seeds, lab.error_share(first), within=within
        )
        yield metric, effect, noise


def _in_order(steps: Sequence[PlanStep], settled: set[str]) -> Iterator[PlanStep]:
    """Yield steps in order: each time the best without an open prerequisite."""
    remaining, done = list(steps), set(settled)
    while remaining:
        ready = [step for step in remaining if set(step.hypothesis.header.prerequisites) <= done]
        best = max(ready or remaining, key=lambda step: (not step.refused, step.score))
        remaining.remove(best)
        yield best
        if not any(step.hypothesis.id == best.hypothesis.id for step in remaining):
            done.add(best.hypothesis.id)


def open_steps(lab: Lab, hypothesis: Hypothesis, jobs: int) -> Iterator[PlanStep]:
    """Yield the open check, and the open experiment."""
    header = hypothesis.header
    waits = tuple(name for name in header.prerequisites if not judge(lab, lab.hypotheses[name]).settled)
    if header.check and not lab.history.entries_of(CheckResult, hypothesis.id):
        check_power = 1.0 if header.check.settles else NARROWING_POWER
        bits = information(header.probability, check_power, 0.0)
        yield PlanStep(hypothesis, "check", header.probability, bits, check_minutes(lab), 1, waits_for=waits)
        if header.check.settles:
            return  # the check decides whether an experiment is needed
    if header.arms:
        try:
            yield experiment_step(lab, hypothesis, jobs, waits)
        except TruingError as error:  # of one header; the plan of the others continues
            step = PlanStep(hypothesis, "experiment", header.probability, 0.0, math.nan, 1)
            yield replace(step, refused=str(error), would="a valid header", waits_for=waits)


def experiment_step(
    lab: Lab,
    hypothesis: Hypothesis,
    jobs: int,
    waits: tuple[str, ...] = (),
    within: Within | None = None,
) -> PlanStep:
    """Return the experiment of a hypothesis, its cost, and the effect that it detects."""
    header, error = hypothesis.header, lab.error_share(hypothesis)
    declaration = lab.declaration(hypothesis)
    within = within_of(header, declaration) if within is None else within
    noise = noise_of(lab, hypothesis, header)
    runs = missing_runs(lab, hypothesis, declaration)
    refused, would = why_underpowered(header, noise, error, within)
    return PlanStep(
        hypothesis,
        "experiment",
        header.probability,
        information(header.probability, power_at_smallest_effect(header, noise, error, within), error),
        runs * run_minutes(lab) / jobs,
        runs,
        min_detectable_effect(header, noise, error, within),
        noise,
        refused,
        would,
        waits,
    )


def missing_runs(lab: Lab, hypothesis: Hypothesis, declaration: Declaration | None) -> int:
    """Return the number of runs that all seeds of an experiment still need."""
    base, *arms = arms_of(lab, hypothesis, declaration).values()
    return len(missing_jobs(lab, base, arms, hypothesis.header.seed_range))


def run_minutes(lab: Lab) -> float:
    """Return the mean minutes of a run of this lab; NaN before the first."""
    seconds = [run.seconds for run in lab.history.entries_of(Run) if run.seconds is not None]
    return math.fsum(seconds) / len(seconds) / 60 if seconds else math.nan


def check_minutes(lab: Lab) -> float:
    """Return the mean minutes of a check of this lab."""
    seconds = [each.seconds for each in lab.history.entries_of(CheckResult) if each.seconds is not None]
    return math.fsum(seconds) / len(seconds) / 60 if seconds else CHECK_MINUTES
