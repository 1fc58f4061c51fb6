"""Explanations from the log of a foreign run for a reward that does not rise."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from truing.doctor.evidence import Step
from truing.doctor.hypotheses.hypothesis import Hypothesis
from truing.doctor.hypotheses.reward_trend import (
    MIN_UPDATES,
    RECENT_UPDATES,
    RewardTrend,
    before_the_fall,
    fault_of,
    reward_trend,
)
from truing.doctor.importers.diagnose_log import LogDiagnosis
from truing.doctor.report.repeated_findings import findings_by_rule
from truing.doctor.verdict import FINDING_VERDICTS
from truing.errors import RecordError
from truing.utils.format import with_count

MOSTLY = 0.8
"""Of the groups."""

MANY = 0.3
"""Of the rollouts."""


@dataclass(frozen=True)
class LogHistory:
    """The steps of a log."""

    log_diagnosis: LogDiagnosis

    @property
    def updates(self) -> Sequence[Mapping[str, float]]:
        """Return our names and numbers, by record."""
        return [step.metrics for step in self.log_diagnosis.imported.steps]

    def last(self, name: str) -> float:
        """Return a metric's mean over the last records; NaN if unknown."""
        known = [numbers[name] for numbers in self.updates if math.isfinite(numbers.get(name, math.nan))]
        return math.fsum(known[-RECENT_UPDATES:]) / len(known[-RECENT_UPDATES:]) if known else math.nan

    def before(self, name: str) -> float:
        """Return its mean before the reward fell; NaN without a fall or values."""
        return before_the_fall(
            self.reward_trend, [step.metrics.get(name, math.nan) for step in self._rewarded]
        )

    @property
    def _rewarded(self) -> list[Step]:
        """Return the records with a reward."""
        steps = self.log_diagnosis.imported.steps
        return [step for step in steps if math.isfinite(step.metrics.get("reward/mean", math.nan))]

    @cached_property
    def reward_trend(self) -> RewardTrend:
        """Return the trend of the mean reward, by the log's step numbers."""
        rewarded, run = self._rewarded, self.log_diagnosis.imported
        broken = [step for step in run.steps if "reward/mean" in step.metrics]
        if broken and not rewarded:
            raise RecordError(
                f"the reward of {run.format} is never a finite number",
                got=f"{broken[0].metrics['reward/mean']:g} at step {broken[0].step + 1}, and in all of"
                f" {with_count(len(broken), 'record')}",
                expected="a mean reward in some step",
                remedy="find the reward function that returns NaN or infinity; `truing check` has the rest",
            )
        if not rewarded:
            raise RecordError(
                f"{run.format} has no reward",
                got=", ".join(self.log_diagnosis.imported.matched),
                expected="the mean reward of each step",
                remedy="check its other numbers with `truing check`",
            )
        return reward_trend(
            [step.metrics["reward/mean"] for step in rewarded],
            [step.step + 1 for step in rewarded],
            self._fault,
        )

    @property
    def _fault(self) -> str:
        """Return what makes the rewards no sign of learning; "" if nothing is known to."""
        norms = [numbers["grad/norm"] for numbers in self.updates if "grad/norm" in numbers]
        still = "the gradient norm is exactly 0 in all of " + with_count(len(norms), "record")
        return fault_of(self.log_diagnosis.diagnosis) or (still if norms and not any(norms) else "")


def why_log(history: LogHistory) -> list[Hypothesis]:
    """Return every hypothesis: found ones first, then open ones, then excluded ones."""
    hypotheses = [
        hypothesis for ask in (_rules, _signal, _cut, _size, _not_in_log) for hypothesis in ask(history)
    ]
    return sorted(hypotheses, key=lambda each: ("found", "open", "ruled out").index(each.state))


def _rules(history: LogHistory) -> Iterator[Hypothesis]:
    results = history.log_diagnosis.diagnosis.results()
    for each in findings_by_rule(
        f for result in results for f in result.findings if f.claim.verdict in FINDING_VERDICTS
    ):
        strongest = each.shown
        yield Hypothesis(
            f"{strongest.claim.verdict} {strongest.code} {strongest.name}",
            "found",
            f"{strongest.claim.what} ({strongest.where})",
            f"truing explain {strongest.code}",
            code=strongest.code,
        )


def _signal(history: LogHistory) -> Iterator[Hypothesis]:
    share = history.last("group/zero_variance_share")
    if math.isnan(share):
        return
    reason = f"{share:.0%} of groups have equal rewards, at a mean reward of {history.reward_trend.last:.3g}"
    if share < MOSTLY:
        yield Hypothesis("groups have no signal", "ruled out", reason)
    elif history.before("group/zero_variance_share") < MOSTLY:
        before = f"{history.before('group/zero_variance_share'):.0%} had before the reward fell"
        yield Hypothesis("groups have no signal", "ruled out", f"{reason}; {before}")
    elif history.reward_trend.learns:
        yield Hypothesis("groups have no signal: the tasks are solved", "open", reason)
    else:
        which = "the log lacks the shares of groups that are all right and all wrong"
        yield Hypothesis("groups have no signal", "open", f"{reason}; {which}")


def _cut(history: LogHistory) -> Iterator[Hypothesis]:
    cut, before = history.last("truncated/share"), history.before("truncated/share")
    if math.isnan(cut):
        return
    reason = f"{cut:.0%} of rollouts are cut"
    if cut <= MANY:
        yield Hypothesis("answers are cut", "ruled out", reason)
    elif before <= MANY:
        yield Hypothesis(
            "answers are cut", "ruled out", f"{reason}; {before:.0%} were before the reward fell"
        )
    else:
        longer = "train again with a higher limit of tokens"
        yield Hypothesis(
            "answers are cut", "open" if history.reward_trend.learns else "found", reason, longer
        )


def _size(history: LogHistory) -> Iterator[Hypothesis]:
    way, share = history.reward_trend, history.last("group/zero_variance_share")
    rates = [numbers["lr"] for numbers in history.updates if math.isfinite(numbers.get("lr", math.nan))]
    rate = max(rates, default=math.nan)  # a schedule may lower the last ones
    at = "" if math.isnan(rate) else f"learning rate {rate:.2g}, "
    if way.fell and not way.fault:
        smaller = "train again from before the break, at a tenth of the learning rate"
        yield Hypothesis("optimizer steps are too large", "open", f"{at}the reward fell {way.fell}", smaller)
    if way.fault:
        yield Hypothesis("optimizer steps are too small", "ruled out", f"at any rate: {way.fault}")
    elif way.learns or way.fell:
        yield Hypothesis("optimizer steps are too small", "ruled out", way.summary())
    elif rate == 0:
        yield Hypothesis("the learning rate is 0", "found", f"in all of {with_count(len(rates), 'record')}")
    elif share >= MOSTLY:
        because = f"{share:.0%} of groups have no advantage: a larger rate has almost no effect"
        yield Hypothesis("optimizer steps are too small", "ruled out", because)
    elif way.updates < MIN_UPDATES:
        reason = f"{with_count(way.updates, 'record')}: a trend shows over {MIN_UPDATES} or more"
        yield Hypothesis("there were too few steps to tell", "open", reason, "train on")
    else:
        ends = f"{at}reward from {way.first:.3g} to {way.last:.3g}"
        yield Hypothesis(
            "optimizer steps are too small", "open", ends, "train again at ten times the learning rate"
        )


def _not_in_log(history: LogHistory) -> Iterator[Hypothesis]:
    audit = "train under truing.integrations.trl.audit (`truing explain doctor`)"
    yield Hypothesis(
        "a bug that scalars do not show",
        "open",
        f"{with_count(history.log_diagnosis.exact_not_checked, 'exact rule')} lack tokens",
        audit if history.log_diagnosis.imported.trainer == "trl" else "",
    )
