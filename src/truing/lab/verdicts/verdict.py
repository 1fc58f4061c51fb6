"""Verdicts on claims, from checks and pairs, by the declared criteria."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from truing.analysis.stage_gain import StageGain
from truing.lab.report.numbers import nan_to_none
from truing.lab.run.design import BASELINE, baseline_digest, baseline_of
from truing.lab.stats import e_process
from truing.lab.stats.difference_bounds import within_of
from truing.lab.stats.noise import noise_of
from truing.lab.stats.pairs import failed_runs, pairs_of
from truing.lab.stats.sensitivity import error_per_arm, min_detectable_effect
from truing.lab.store.hypothesis_file import Header, Hypothesis, declared_header
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Declaration, Run
from truing.lab.verdicts.criteria import CriterionState, Pairs
from truing.lab.verdicts.decide import VerdictName, decide, reported_arm, why_not_comparable
from truing.lab.verdicts.exact_check import clean_text, is_ruled_out, proven_texts, unsettled_texts
from truing.lab.verdicts.own_gain import gain_facts, own_gains
from truing.lab.verdicts.quality import Quality, quality_of

Basis = Literal["proof", "experiment", "prior", ""]


@dataclass(frozen=True)
class HypothesisVerdict:
    """The verdict on a hypothesis, with its evidence; NaN, or an infinite bound, without pairs."""

    hypothesis: str
    title: str
    verdict: VerdictName
    because: str
    by: Basis
    metric: str
    arm: str  # of the effect
    error: float  # the probability that either bound is wrong
    mde: float  # minimum detectable effect of all its seeds, at a power of 0.8
    smallest_effect: float
    seeds: int
    effect: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    within: float | None = None  # bound on a pair's difference; None if unknown: the bets are on signs
    pairs: int = 0
    criteria: tuple[CriterionState, ...] = ()
    quality: Quality = "–"
    quality_because: str = ""
    notes: tuple[str, ...] = ()
    gains: Mapping[str, StageGain] = field(
        default_factory=dict[str, StageGain]
    )  # of each arm over its last stage
    repaired: bool = False  # recipe or header changed after failed runs, before any result of an arm

    @property
    def criteria_met(self) -> bool | None:
        """Whether all criteria that confirm the claim are met; None while one is open."""
        states = [each.state for each in self.criteria if each.confirms]
        if "contradicted" in states:
            return False
        return None if not states or "open" in states else True

    @property
    def settled(self) -> bool:
        """Whether no more runs are needed."""
        if self.repaired and self.by != "proof":
            return False
        return self.verdict not in ("PENDING", "TESTING") and self.by != "prior"

    def facts(self) -> dict[str, Any]:
        """Return the JSON form: null for unknown values."""
        gains = {label: gain_facts(gain) for label, gain in self.gains.items()}
        facts = asdict(replace(self, gains={}))
        return nan_to_none(facts | {"criteria_met": self.criteria_met, "gains": gains})


def judge(lab: Lab, hypothesis: Hypothesis) -> HypothesisVerdict:
    """Return the verdict on a hypothesis: by an exact check, else by the pairs."""
    experiment_verdict = judge_pairs(lab, hypothesis)
    checks = lab.history.entries_of(CheckResult, hypothesis.id)
    if not checks:
        return experiment_verdict
    header, declaration = _declared_header(lab, hypothesis)
    verdict = _with_check(header, checks[-1], experiment_verdict)
    if checks[-1].arm == baseline_digest(lab, declaration):
        return verdict
    note = "the check is of an earlier baseline: truing lab run repeats it"
    return replace(verdict, notes=(*verdict.notes, note))


def judge_pairs(lab: Lab, hypothesis: Hypothesis) -> HypothesisVerdict:
    """Return the verdict by the experiment alone, or the prior before there is one."""
    header, declaration = _declared_header(lab, hypothesis)
    error = declaration.error if declaration else lab.error_share(hypothesis)
    noise = noise_of(lab, hypothesis, header)
    pending = HypothesisVerdict(
        hypothesis.id,
        hypothesis.title,
        "PENDING",
        "no run yet",
        "",
        header.metric,
        next(iter(header.arms), ""),
        error,
        min_detectable_effect(header, noise, error, within_of(header, declaration)),
        header.smallest_effect,
        header.seeds,
        criteria=tuple(
            CriterionState(str(c), "open", c in header.confirm) for c in (*header.confirm, *header.refute)
        ),
    )
    if declaration is None:
        return _prior_verdict(header, pending)
    verdict = _with_changes(lab, hypothesis, declaration, _by_experiment(lab, header, declaration, pending))
    note = "its file has changed; it is judged by what was declared before the first run"
    return verdict if header == hypothesis.header else replace(verdict, notes=(*verdict.notes, note))


def _with_changes(
    lab: Lab, hypothesis: Hypothesis, declaration: Declaration, verdict: HypothesisVerdict
) -> HypothesisVerdict:
    """Return a verdict of failed runs with what has changed since they were declared."""
    other_header = hypothesis.header != declared_header(declaration)
    other_baseline = baseline_of(lab).digest != declaration.arms[BASELINE]
    if not failed_runs(lab.history, declaration.arms) or not (other_header or other_baseline):
        return verdict
    arms = {arm for label, arm in declaration.arms.items() if label != BASELINE}
    repaired = not any(run.arm in arms and run.outcome == "finished" for run in lab.history.runs().values())
    changed = f"{'baseline' if other_baseline else 'header'} has changed since its runs were declared"
    note = (
        f"its {changed}, and no arm has a result: truing lab run {hypothesis.id} --retry begins anew with it"
        if repaired
        else f"its {changed}: with results, it keeps the declared one; for the new one: truing lab new"
    )
    return replace(verdict, repaired=repaired, notes=(*verdict.notes, note))


def _declared_header(lab: Lab, hypothesis: Hypothesis) -> tuple[Header, Declaration | None]:
    """Return the declared header and its declaration; before the first run, the file's header and None."""
    declaration = lab.declaration(hypothesis)
    return declared_header(declaration) if declaration else hypothesis.header, declaration


def _prior_verdict(header: Header, pending: HypothesisVerdict) -> HypothesisVerdict:
    """Return the verdict by the header's prior; pending without one."""
    if header.prior is None:
        return pending
    because = f"{header.prior.note} ({header.prior.source})"
    reason = "reported elsewhere, not measured in this lab"
    return replace(
        pending,
        verdict=header.prior.verdict,
        because=because,
        by="prior",
        quality="low",
        quality_because=reason,
    )


def check_verdict(header: Header, result: CheckResult) -> tuple[VerdictName, str] | None:
    """Return the verdict and reason of an exact check by itself; None if it does not settle the claim."""
    if header.check is None:
        return None
    if proven := proven_texts(header.check, result):
        return "VALIDATED", "; ".join(proven)
    if header.check.settles and is_ruled_out(header.check, result):
        return "INVALIDATED", clean_text(header.check, result)
    return None


def _with_check(
    header: Header, result: CheckResult, experiment_verdict: HypothesisVerdict
) -> HypothesisVerdict:
    """Return the verdict with the check: it decides if it can and no experiment has; else it is a note."""
    by_check = check_verdict(header, result)
    if by_check is None or (
        experiment_verdict.by == "experiment"
        and experiment_verdict.verdict not in ("TESTING", "INCONCLUSIVE")
    ):
        text = by_check[1] if by_check else _check_note(header, result)
        return replace(experiment_verdict, notes=(*experiment_verdict.notes, f"the check: {text}"))
    verdict, because = by_check
    return replace(
        experiment_verdict,
        verdict=verdict,
        because=because,
        by="proof",
        quality="high",
        quality_because="an exact check",
    )


def _check_note(header: Header, result: CheckResult) -> str:
    """Return the result of a check that settles nothing, as text."""
    if header.check is None:
        return "the header no longer asks for one"
    return "; ".join(filter(None, [clean_text(header.check, result), *unsettled_texts(header.check, result)]))


def _by_experiment(
    lab: Lab, header: Header, declaration: Declaration, pending: HypothesisVerdict
) -> HypothesisVerdict:
    """Return the verdict by the pairs, in the order of their seeds."""
    base = declaration.arms[BASELINE]
    seeds = header.seed_range
    pairs: Pairs = {arm: pairs_of(lab.history, base, declaration.arms[arm], seeds) for arm in header.arms}
    if obstacle := why_not_comparable(header, pairs):
        return replace(pending, verdict="INCONCLUSIVE", because=obstacle, by="experiment", quality="low")
    failed = failed_runs(lab.history, declaration.arms)
    verdict, because, criteria = decide(header, pairs, declaration, failed)
    arm, within = reported_arm(header, verdict, pairs, declaration), declaration.within.get(header.metric)
    error = error_per_arm(header, declaration.error)
    data = [pair.difference(header.metric) for pair in pairs[arm]]
    bounds = e_process.lower_bound(data, error, within), e_process.upper_bound(data, error, within)
    # with runs that were repeated: a failure may be the arm's effect
    failures = sum(
        run.arm in declaration.arms.values() and run.outcome != "finished"
        for run in lab.history.entries_of(Run)
    )
    quality, reason = quality_of(header, verdict, pairs[arm], bounds, failures)
    notes = [f"{run.label}, seed {run.seed}, {run.outcome}: {run.error}" for run in failed]
    for each in data:
        if within is not None and abs(each) > within:
            direction = "above" if each < 0 else "below"
            text = f"a pair differs by {each:+.3f}, and within is {within:g}"
            notes.append(f"{text}: nothing is proven to be {direction} a bound")
    return replace(
        pending,
        verdict=verdict,
        because=because,
        by="experiment",
        arm=arm,
        criteria=criteria,
        error=error,
        pairs=len(data),
        effect=float(np.mean(data)) if data else math.nan,
        low=bounds[0],
        high=bounds[1],
        quality=quality,
        quality_because=reason,
        notes=tuple(notes),
        within=within,
        gains=own_gains(lab.history, declaration.arms, seeds),
    )
