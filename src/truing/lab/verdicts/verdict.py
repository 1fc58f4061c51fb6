"""What checks and pairs say of a claim, by the criteria that were written before them."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from truing.lab.report.numbers import nan_to_none
from truing.lab.run.design import BASELINE, baseline_changes, resolve_arm
from truing.lab.stats import e_process
from truing.lab.stats.difference_bounds import within_of
from truing.lab.stats.noise import noise_of
from truing.lab.stats.pairs import failed_runs, pairs_of
from truing.lab.stats.sensitivity import error_per_arm, min_detectable_effect
from truing.lab.store.hypothesis_file import Header, Hypothesis, declared_header
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Declaration, Promotion, Run
from truing.lab.verdicts.criteria import CriterionState, Pairs
from truing.lab.verdicts.decide import VerdictName, decide, reported_arm, why_not_comparable
from truing.lab.verdicts.exact_check import clean_text, is_ruled_out, proven_texts, unsettled_texts
from truing.lab.verdicts.quality import Quality, quality_of

Basis = Literal["proof", "experiment", "prior", ""]


@dataclass(frozen=True)
class HypothesisVerdict:
    """Everything that there is to say of a hypothesis; NaN, or an infinite bound, where pairs lack."""

    hypothesis: str
    title: str
    verdict: VerdictName
    because: str
    by: Basis
    metric: str
    arm: str  # that the effect is of
    error: float  # the chance that either bound is wrong
    mde: float  # the smallest effect that all its seeds see with a power of 0.8
    smallest_effect: float
    seeds: int
    effect: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    within: float | None = (
        None  # how far from 0 a pair can lie; None is not known: signs are all that is bet on
    )
    pairs: int = 0
    criteria: tuple[CriterionState, ...] = ()
    quality: Quality = "–"
    quality_because: str = ""
    notes: tuple[str, ...] = ()

    @property
    def criteria_met(self) -> bool | None:
        """Whether all that was to confirm the claim is proven; None while that is open."""
        states = [each.state for each in self.criteria if each.confirms]
        if "contradicted" in states:
            return False
        return None if not states or "open" in states else True

    @property
    def settled(self) -> bool:
        """Whether no run is needed any more."""
        return self.verdict not in ("PENDING", "TESTING") and self.by != "prior"

    def facts(self) -> dict[str, Any]:
        """As JSON has it: null for what is not known."""
        return nan_to_none(asdict(self) | {"criteria_met": self.criteria_met})


def judge(lab: Lab, hypothesis: Hypothesis) -> HypothesisVerdict:
    """The verdict on a hypothesis: what a check proved, else what the pairs say."""
    made = _judge(lab, hypothesis)
    notes = [f"{fix.arm} is part of the baseline" for fix in lab.history.entries_of(Promotion, hypothesis.id)]
    return replace(made, notes=(*made.notes, *notes))


def _judge(lab: Lab, hypothesis: Hypothesis) -> HypothesisVerdict:
    """The verdict, whatever became of it."""
    tried = judge_pairs(lab, hypothesis)
    checks = lab.history.entries_of(CheckResult, hypothesis.id)
    if not checks:
        return tried
    header, begun = _declared_header(lab, hypothesis)
    made = _with_check(header, checks[-1], tried)
    note = "the check is of an earlier baseline: truing lab run makes it anew"
    return replace(made, notes=(*made.notes, note)) if _of_earlier_baseline(lab, begun, checks[-1]) else made


def judge_pairs(lab: Lab, hypothesis: Hypothesis) -> HypothesisVerdict:
    """The verdict by the experiment alone, or what was said before there was one."""
    header, begun = _declared_header(lab, hypothesis)
    error = begun.error if begun else lab.error_share(hypothesis)
    noise = noise_of(lab, hypothesis, header)
    blank = HypothesisVerdict(
        hypothesis.id,
        hypothesis.title,
        "PENDING",
        "nothing was run",
        "",
        header.metric,
        next(iter(header.arms), ""),
        error,
        min_detectable_effect(header, noise, error, within_of(header, begun)),
        header.smallest_effect,
        header.seeds,
        criteria=tuple(
            CriterionState(str(c), "open", c in header.confirm) for c in (*header.confirm, *header.refute)
        ),
    )
    if begun is None:
        return _prior_verdict(header, blank)
    made = _by_experiment(lab, header, begun, blank)
    note = "its file says something else by now; it is judged by what was declared before the first run"
    return made if header == hypothesis.header else replace(made, notes=(*made.notes, note))


def _declared_header(lab: Lab, hypothesis: Hypothesis) -> tuple[Header, Declaration | None]:
    """The header as it was before the first run, and when that was declared."""
    begun = lab.declaration(hypothesis)
    return declared_header(begun) if begun else hypothesis.header, begun


def _prior_verdict(header: Header, blank: HypothesisVerdict) -> HypothesisVerdict:
    """What was said before anything was run here."""
    if header.prior is None:
        return blank
    because = f"{header.prior.note} ({header.prior.source})"
    told = "told, not measured in this lab"
    return replace(
        blank, verdict=header.prior.verdict, because=because, by="prior", quality="low", quality_because=told
    )


def check_verdict(header: Header, checked: CheckResult) -> tuple[VerdictName, str] | None:
    """What an exact check settles by itself."""
    if header.check is None:
        return None
    if found := proven_texts(header.check, checked):
        return "VALIDATED", "; ".join(found)
    if header.check.settles and is_ruled_out(header.check, checked):
        return "INVALIDATED", clean_text(header.check, checked)
    return None


def _with_check(header: Header, checked: CheckResult, tried: HypothesisVerdict) -> HypothesisVerdict:
    """A check decides where it can and no experiment has; else it is a note."""
    settled = check_verdict(header, checked)
    if settled is None or (tried.by == "experiment" and tried.verdict not in ("TESTING", "INCONCLUSIVE")):
        said = settled[1] if settled else _check_note(header, checked)
        return replace(tried, notes=(*tried.notes, f"the check: {said}"))
    verdict, because = settled
    return replace(
        tried, verdict=verdict, because=because, by="proof", quality="high", quality_because="an exact check"
    )


def _of_earlier_baseline(lab: Lab, begun: Declaration | None, checked: CheckResult) -> bool:
    """Whether something was promoted since, so that the check is of what the baseline was then."""
    now = begun.arms[BASELINE] if begun else resolve_arm(lab, BASELINE, baseline_changes(lab)).digest
    return checked.arm != now


def _check_note(header: Header, checked: CheckResult) -> str:
    """What a check found where it settles nothing."""
    if header.check is None:
        return "the header asks for none any more"
    return "; ".join(
        filter(None, [clean_text(header.check, checked), *unsettled_texts(header.check, checked)])
    )


def _by_experiment(
    lab: Lab, header: Header, begun: Declaration, blank: HypothesisVerdict
) -> HypothesisVerdict:
    """From the pairs, in the order of their seeds."""
    base = begun.arms[BASELINE]
    seeds = header.seed_range
    pairs: Pairs = {arm: pairs_of(lab.history, base, begun.arms[arm], seeds) for arm in header.arms}
    if why_not := why_not_comparable(header, pairs):
        return replace(blank, verdict="INCONCLUSIVE", because=why_not, by="experiment", quality="low")
    failed = failed_runs(lab.history, begun.arms)
    verdict, because, criteria = decide(header, pairs, begun, failed)
    arm, within = reported_arm(header, verdict, pairs, begun), begun.within.get(header.metric)
    error = error_per_arm(header, begun.error)
    data = [pair.difference(header.metric) for pair in pairs[arm]]
    bounds = e_process.lower_bound(data, error, within), e_process.upper_bound(data, error, within)
    quality, told = quality_of(header, verdict, pairs[arm], bounds, _count_failed_runs(lab, begun))
    beyond = [] if within is None else [each for each in data if abs(each) > within]
    notes = [f"{run.label}, seed {run.seed}, {run.outcome}: {run.error}" for run in failed]
    notes += [_beyond_within(each, within) for each in beyond if within is not None]
    return replace(
        blank,
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
        quality_because=told,
        notes=tuple(notes),
        within=within,
    )


def _beyond_within(difference: float, within: float) -> str:
    """What a pair that lies farther from 0 than was supposed does to the verdict."""
    side = "above" if difference < 0 else "below"
    told = f"a pair differs by {difference:+.3f}, and within is {within:g}"
    return f"{told}: nothing is proven to be {side} a bound"


def _count_failed_runs(lab: Lab, begun: Declaration) -> int:
    """Runs that did not finish, also those that were run again: why they failed may be what they came to."""
    runs = lab.history.entries_of(Run)
    return sum(run.arm in begun.arms.values() and run.outcome != "finished" for run in runs)
