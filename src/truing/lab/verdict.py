"""What checks and pairs say of a claim, by the criteria that were written before them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from truing.lab import betting
from truing.lab.criteria import Judged, Pairs, hopeless, met, state
from truing.lab.design import BASELINE, baseline_changes, resolve_arm
from truing.lab.folder import Lab
from truing.lab.header import Header, Hypothesis
from truing.lab.ledger import Begun, Checked, Run
from truing.lab.noise import noise_of
from truing.lab.numbers import finite
from truing.lab.pairs import broken, pairs_of
from truing.lab.proof import clean, proven, ruled_out, unsettled
from truing.lab.quality import Quality, quality_of
from truing.lab.sight import error_of_an_arm, smallest_seen

Name = Literal["PENDING", "TESTING", "VALIDATED", "PARTIALLY VALIDATED", "INVALIDATED", "INCONCLUSIVE"]
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
    noise = noise_of(lab, hypothesis.id, header)
    blank = Verdict(
        hypothesis.id,
        hypothesis.title,
        "PENDING",
        "nothing was run",
        "",
        header.metric,
        next(iter(header.arms), ""),
        error,
        smallest_seen(header, noise, error),
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
    begun = next(iter(lab.history.of(Begun, hypothesis.id)), None)
    return Header.model_validate(begun.header) if begun else hypothesis.header, begun


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
    if unfit := _unfit(header, pairs):
        return replace(blank, verdict="INCONCLUSIVE", because=unfit, by="experiment", quality="low")
    failed = broken(lab.history, begun.arms)
    verdict, because, criteria = _decide(header, pairs, begun, failed)
    arm = _shown(header, verdict, pairs, begun.error)
    error = error_of_an_arm(header, begun.error)
    data = [pair.difference(header.metric) for pair in pairs[arm]]
    bounds = betting.low(data, error), betting.high(data, error)
    quality, told = quality_of(header, verdict, pairs[arm], bounds, _failures(lab, begun))
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
        notes=tuple(f"{run.label}, seed {run.seed}, {run.outcome}: {run.error}" for run in failed),
    )


def _shown(header: Header, verdict: Name, pairs: Pairs, error: float) -> str:
    """The arm that the effect is of: the first that confirms, else the first that has pairs."""
    share = error if verdict == "VALIDATED" else error / len(header.confirm)
    for each in header.confirm:
        arms = [each.arm] if each.arm else list(header.arms)
        own = (each.model_copy(update={"arm": arm}) for arm in arms)
        for one in own:
            if one.arm and met(one, pairs, share / len(arms), confirms=True):
                return one.arm
    return next((arm for arm in header.arms if pairs[arm]), next(iter(header.arms)))


def _decide(
    header: Header, pairs: Pairs, begun: Begun, failed: Sequence[Run]
) -> tuple[Name, str, tuple[Judged, ...]]:
    """The verdict, why, and each criterion."""
    error = begun.error
    confirm = [state(each, pairs, error, confirms=True) for each in header.confirm]
    refute = [state(each, pairs, error / len(header.refute), confirms=False) for each in header.refute]
    every = (*confirm, *refute)
    proven = "proven: " + "; ".join(each.text for each in every if each.state == "met")
    if any(each.state == "met" for each in refute):
        return "INVALIDATED", proven, every
    if all(each.state == "met" for each in confirm):
        return "VALIDATED", proven, every
    # one of several that would do: each has its share of the error
    share = error / len(confirm)
    some = [each for each in header.confirm if met(each, pairs, share, confirms=True)]
    rest = [each for each in confirm if each.state == "open"]
    part = f"only in part: {'; '.join(map(str, some))}"
    if some and not rest:
        return "PARTIALLY VALIDATED", part, every
    ended = _ended(header, pairs, begun, failed)
    if not ended:
        return "TESTING", f"{_least(pairs)} of {header.seeds} pairs", every
    return ("PARTIALLY VALIDATED", part, every) if some else ("INCONCLUSIVE", ended, every)


def _failures(lab: Lab, begun: Begun) -> int:
    """Runs that did not finish, also those that were run again: why they failed may be what they came to."""
    runs = lab.history.of(Run)
    return sum(run.arm in begun.arms.values() and run.outcome != "finished" for run in runs)


def _unfit(header: Header, pairs: Pairs) -> str:
    """Why pairs cannot be compared by what the header asks for; "" where they can."""
    asked = {header.metric, *(each.metric for each in (*header.confirm, *header.refute))}
    told = (
        pair.unfit(sorted(asked), same_prompts=not _changes_prompts(header.arms[arm]))
        for arm, each in pairs.items()
        for pair in each
    )
    return next(filter(None, told), "")


def _changes_prompts(changes: Sequence[str]) -> bool:
    """Whether an arm is about what is asked, so that its prompts are others on purpose."""
    return any(change.startswith(("env.", "env=", "episode.", "episode=")) for change in changes)


def _ended(header: Header, pairs: Pairs, begun: Begun, failed: Sequence[Run]) -> str:
    """Why no pair that is still to come would help; "" where one may."""
    live = live_arms(header, failed)
    left = {arm: pairs[arm] for arm in live if len(pairs[arm]) < header.seeds}
    criteria = (*header.confirm, *header.refute)
    about = [each for each in criteria if each.arm is None or each.arm in left]
    # who began what may not decide wants its numbers all the same
    spent = not begun.underpowered and all(hopeless(each, pairs, header.seeds, begun.error) for each in about)
    if left and not spent:
        return ""
    if failed:
        first = failed[0]
        return f"{first.label}, seed {first.seed}, {first.outcome}: {first.error}"
    if not left:
        return f"{header.seeds} pairs settle no criterion"
    return f"after {_least(pairs)} pairs, those that are left can settle no criterion"


def live_arms(header: Header, failed: Sequence[Run]) -> list[str]:
    """Arms that go on: without a baseline none does."""
    labels = {run.label for run in failed}
    return [] if BASELINE in labels else [arm for arm in header.arms if arm not in labels]


def _least(pairs: Mapping[str, Any]) -> int:
    """Pairs that every arm has."""
    return min(len(each) for each in pairs.values())
