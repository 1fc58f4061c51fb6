"""The plan: open steps in the order of their hypotheses, and whether each can decide."""

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Any

from truing.errors import TruingError
from truing.lab.report.numbers import nan_to_none
from truing.lab.run.cost import run_minutes
from truing.lab.run.design import arms_of, missing_jobs
from truing.lab.stats.difference_bounds import within_of
from truing.lab.stats.noise import Noise, noise_of
from truing.lab.stats.sensitivity import min_detectable_effect, why_underpowered
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Declaration
from truing.lab.verdicts.verdict import judge


@dataclass(frozen=True)
class PlanStep:
    """An open check or experiment."""

    hypothesis: Hypothesis
    kind: str  # check, experiment
    waits_for: tuple[str, ...]  # prerequisites that are not settled
    runs: int | None = None  # remaining; None if unknown
    minutes: float = math.nan  # NaN if unknown
    mde: float = math.nan
    noise: Noise | None = None
    refused: str = ""  # why it cannot decide
    would: str = ""  # what would help
    keys: frozenset[str] = frozenset()  # of the remaining runs: experiments share those of the baseline
    retry: bool = False  # it failed, and its recipe has changed since

    def facts(self) -> dict[str, Any]:
        """Return the JSON form: null for unknown values."""
        facts = {
            name: value for name, value in vars(self).items() if name not in ("hypothesis", "noise", "keys")
        }
        noise = {"noise": self.noise.source} if self.noise else {}
        return nan_to_none({"hypothesis": self.hypothesis.id} | facts | noise)


def plan(lab: Lab, jobs: int = 1) -> list[PlanStep]:
    """Return every open step: each time of the lowest number whose prerequisites come before it."""
    settled = {name for name, each in lab.hypotheses.items() if judge(lab, each).settled}
    remaining = sorted(
        (each for name, each in lab.hypotheses.items() if name not in settled), key=lambda each: each.number
    )
    steps, done = [], set(settled)
    while remaining:
        first = next(each for each in remaining if set(each.header.prerequisites) <= done)
        remaining.remove(first)
        done.add(first.id)
        steps += open_steps(lab, first, settled, jobs)
    return steps


def open_steps(lab: Lab, hypothesis: Hypothesis, settled: Set[str], jobs: int) -> Iterator[PlanStep]:
    """Yield the open check, then the open experiment."""
    header = hypothesis.header
    waits = tuple(name for name in header.prerequisites if name not in settled)
    if header.check and not lab.history.entries_of(CheckResult, hypothesis.id):
        yield PlanStep(hypothesis, "check", waits, 1, minutes=check_minutes(lab))
        if header.check.settles:
            return  # the check decides whether an experiment is needed
    if header.arms:
        try:
            yield experiment_step(lab, hypothesis, waits, jobs)
        except TruingError as error:  # of one header; the plan of the others continues
            yield PlanStep(hypothesis, "experiment", waits, refused=str(error), would="a valid header")


def experiment_step(lab: Lab, hypothesis: Hypothesis, waits_for: tuple[str, ...], jobs: int) -> PlanStep:
    """Return the experiment of a hypothesis, its remaining runs, and the effect that it detects."""
    header, error = hypothesis.header, lab.error_share(hypothesis)
    retry = judge(lab, hypothesis).repaired
    declaration = None if retry else lab.declaration(hypothesis)
    within, noise = within_of(header, declaration), noise_of(lab, hypothesis, header)
    keys = missing_runs(lab, hypothesis, declaration)
    refused, would = why_underpowered(header, noise, error, within)
    return PlanStep(
        hypothesis,
        "experiment",
        waits_for,
        len(keys),
        len(keys) * run_minutes(lab)[0] / jobs,
        min_detectable_effect(header, noise, error, within),
        noise,
        refused,
        would,
        keys,
        retry,
    )


def missing_runs(lab: Lab, hypothesis: Hypothesis, declaration: Declaration | None) -> frozenset[str]:
    """Return the keys of the runs that all seeds of an experiment still need."""
    base, *arms = arms_of(lab, hypothesis, declaration).values()
    return frozenset(job.key for job in missing_jobs(lab, base, arms, hypothesis.header.seed_range))


def check_minutes(lab: Lab) -> float:
    """Return the mean minutes of a check of this lab; NaN before the first."""
    seconds = [each.seconds for each in lab.history.entries_of(CheckResult) if each.seconds is not None]
    return math.fsum(seconds) / len(seconds) / 60 if seconds else math.nan
