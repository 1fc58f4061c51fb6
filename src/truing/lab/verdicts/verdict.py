"""What checks and pairs say of a claim, by the criteria that were written before them."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from truing.lab.report.numbers import finite
from truing.lab.run.design import BASELINE, baseline_changes, resolve_arm
from truing.lab.stats import e_process
from truing.lab.stats.difference_bounds import within_of
from truing.lab.stats.noise import noise_of
from truing.lab.stats.pairs import broken, pairs_of
from truing.lab.stats.sensitivity import error_of_an_arm, smallest_seen
from truing.lab.store.hypothesis_file import Header, Hypothesis, declared_header
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import Begun, Checked, Promoted, Run
from truing.lab.verdicts.criteria import Judged, Pairs
from truing.lab.verdicts.decide import Name, decide, shown_arm, unfit
from truing.lab.verdicts.exact_check import clean, proven, ruled_out, unsettled
from truing.lab.verdicts.quality import Quality, quality_of

Basis = Literal["proof", "experiment", "prior", ""]


@dataclass(frozen=True)
class Verdict:
    """Everything that there is to say of a hypothesis; NaN, or an infinite bound, where pairs lack."""

    hypothesis: str
    title: str
    verdict: Name
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
    criteria: tuple[Judged, ...] = ()
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
        return finite(asdict(self) | {"criteria_met": self.criteria_met})


def judge(lab: Lab, hypothesis: Hypothesis) -> Verdict:
    """The verdict on a hypothesis: what a check proved, else what the pairs say."""
    made = _judged(lab, hypothesis)
    notes = [f"{fix.arm} is part of the baseline" for fix in lab.history.of(Promoted, hypothesis.id)]
    return replace(made, notes=(*made.notes, *notes))


def _judged(lab: Lab, hypothesis: Hypothesis) -> Verdict:
    """The verdict, whatever became of it."""
    tried = by_pairs(lab, hypothesis)
    checks = lab.history.of(Checked, hypothesis.id)
    if not checks:
        return tried
    header, begun = _declared(lab, hypothesis)
    made = _with_check(header, checks[-1], tried)
    note = "the check is of an earlier baseline: truing lab run makes it anew"
    return replace(made, notes=(*made.notes, note)) if _of_earlier_baseline(lab, begun, checks[-1]) else made


def by_pairs(lab: Lab, hypothesis: Hypothesis) -> Verdict:
    """The verdict by the experiment alone, or what was said before there was one."""
    header, begun = _declared(lab, hypothesis)
    error = begun.error if begun else lab.error(hypothesis)
    noise = noise_of(lab, hypothesis, header)
    blank = Verdict(
        hypothesis.id,
        hypothesis.title,
        "PENDING",
        "nothing was run",
        "",
        header.metric,
        next(iter(header.arms), ""),
        error,
        smallest_seen(header, noise, error, within_of(header, begun)),
        header.smallest_effect,
        header.seeds,
        criteria=tuple(
            Judged(str(c), "open", c in header.confirm) for c in (*header.confirm, *header.refute)
        ),
    )
    if begun is None:
        return _told(header, blank)
    made = _by_experiment(lab, header, begun, blank)
    note = "its file says something else by now; it is judged by what was declared before the first run"
    return made if header == hypothesis.header else replace(made, notes=(*made.notes, note))


def _declared(lab: Lab, hypothesis: Hypothesis) -> tuple[Header, Begun | None]:
    """The header as it was before the first run, and when that was declared."""
    begun = lab.begun(hypothesis)
    return declared_header(begun) if begun else hypothesis.header, begun


def _told(header: Header, blank: Verdict) -> Verdict:
    """What was said before anything was run here."""
    if header.prior is None:
        return blank
    because = f"{header.prior.note} ({header.prior.source})"
    told = "told, not measured in this lab"
    return replace(
        blank, verdict=header.prior.verdict, because=because, by="prior", quality="low", quality_because=told
    )


def proof(header: Header, checked: Checked) -> tuple[Name, str] | None:
    """What an exact check settles by itself."""
    if header.check is None:
        return None
    if found := proven(header.check, checked):
        return "VALIDATED", "; ".join(found)
    if header.check.settles and ruled_out(header.check, checked):
        return "INVALIDATED", clean(header.check, checked)
    return None


def _with_check(header: Header, checked: Checked, tried: Verdict) -> Verdict:
    """A check decides where it can and no experiment has; else it is a note."""
    settled = proof(header, checked)
    if settled is None or (tried.by == "experiment" and tried.verdict not in ("TESTING", "INCONCLUSIVE")):
        said = settled[1] if settled else _narrowed(header, checked)
        return replace(tried, notes=(*tried.notes, f"the check: {said}"))
    verdict, because = settled
    return replace(
        tried, verdict=verdict, because=because, by="proof", quality="high", quality_because="an exact check"
    )


def _of_earlier_baseline(lab: Lab, begun: Begun | None, checked: Checked) -> bool:
    """Whether something was promoted since, so that the check is of what the baseline was then."""
    now = begun.arms[BASELINE] if begun else resolve_arm(lab, BASELINE, baseline_changes(lab)).digest
    return checked.arm != now


def _narrowed(header: Header, checked: Checked) -> str:
    """What a check found where it settles nothing."""
    if header.check is None:
        return "the header asks for none any more"
    return "; ".join(filter(None, [clean(header.check, checked), *unsettled(header.check, checked)]))


def _by_experiment(lab: Lab, header: Header, begun: Begun, blank: Verdict) -> Verdict:
    """From the pairs, in the order of their seeds."""
    base = begun.arms[BASELINE]
    seeds = header.seed_range
    pairs: Pairs = {arm: pairs_of(lab.history, base, begun.arms[arm], seeds) for arm in header.arms}
    if why_not := unfit(header, pairs):
        return replace(blank, verdict="INCONCLUSIVE", because=why_not, by="experiment", quality="low")
    failed = broken(lab.history, begun.arms)
    verdict, because, criteria = decide(header, pairs, begun, failed)
    arm, within = shown_arm(header, verdict, pairs, begun), begun.within.get(header.metric)
    error = error_of_an_arm(header, begun.error)
    data = [pair.difference(header.metric) for pair in pairs[arm]]
    bounds = e_process.low(data, error, within), e_process.high(data, error, within)
    quality, told = quality_of(header, verdict, pairs[arm], bounds, _failures(lab, begun))
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


def _failures(lab: Lab, begun: Begun) -> int:
    """Runs that did not finish, also those that were run again: why they failed may be what they came to."""
    runs = lab.history.of(Run)
    return sum(run.arm in begun.arms.values() and run.outcome != "finished" for run in runs)
