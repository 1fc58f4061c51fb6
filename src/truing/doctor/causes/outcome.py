"""What became of a stage: its reward over the steps, and the gain of its evaluations."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from truing.analysis.stage_gain import StageGain
from truing.doctor.causes.trend import MIN_STEPS, RECENT_STEPS, Trend
from truing.doctor.diagnosis import Diagnosis, is_finding

NOT_LEARNING = ("OPT005", "OPT015")
"""Rules whose findings say that no step trains, whatever the reward does."""

SHARE = 0.2
"""Of a rise of the reward, which an evaluation that follows it shows."""

SHOWN = 3
"""Evaluations of a log that a report names."""


@dataclass(frozen=True)
class Outcome:
    """The trend of the reward and the gain of the evaluations, together."""

    trend: Trend
    gain: StageGain | None  # None without two evaluations of the same tasks
    second: StageGain | None = None  # the same by the second grader, if there is one
    unearned: tuple[str, ...] = ()  # parts with the largest weight of which no rollout earned anything
    falling: Mapping[str, Trend] = field(default_factory=dict[str, Trend])  # parts of a rising reward
    fault: str = ""  # why a rise is no sign of learning; "" if nothing is known to be broken
    hacked: bool = False  # whether a part with the largest weight is among the falling ones
    evaluated: Mapping[str, Trend] = field(default_factory=dict[str, Trend])  # scores that a log has
    outweighed: Mapping[str, Trend] = field(default_factory=dict[str, Trend])  # parts that do not rise
    loss: str = ""  # of a stage without rewards, in place of their trend

    @property
    def better(self) -> bool:
        """Return whether the evaluations prove a gain."""
        return self.gain is not None and self.gain.is_gain

    @property
    def worse(self) -> bool:
        """Return whether the evaluations prove a loss."""
        return self.gain is not None and self.gain.is_loss

    @property
    def unconfirmed(self) -> bool:
        """Return whether the paid gain is proven, and to be larger than the second grader's, which is not."""
        return self.gain is not None and self.second is not None and self.gain.is_denied_by(self.second)

    @property
    def denied(self) -> dict[str, Trend]:
        """Return the evaluations of a log that do not rise, where the reward rises and none of them does."""
        if not self.trend.rises or any(each.rises for each in self.evaluated.values()):
            return {}
        least = SHARE * (self.trend.last - self.trend.first)
        stay = {name: x for name, x in self.evaluated.items() if x.steps >= MIN_STEPS and x.high < least}
        return stay | {name: x for name, x in self.evaluated.items() if x.falls}

    @property
    def lower(self) -> list[str]:
        """Return the evaluations of a log that fall, as text."""
        return [evaluation_text(*each) for each in self.evaluated.items() if each[1].falls]

    @property
    def down(self) -> bool:
        """Return whether a reward that neither rises nor fell, or an evaluation of its log, goes down."""
        if self.trend.fell or self.trend.rises:
            return False
        return self.trend.down or bool(self.lower)

    @property
    def fell(self) -> bool:
        """Return whether the policy lost what it could."""
        return bool(self.trend.fell) or (self.worse and not self.trend.rises)

    @property
    def learns(self) -> bool:
        """Return whether the policy gets better, and not by smaller parts of the reward alone."""
        rises = self.trend.rises or (self.better and not self.trend.fell)
        only_paid = self.unearned or self.hacked or self.unconfirmed
        return rises and not (self.worse or only_paid or self.fault or self.denied)

    @property
    def lost(self) -> float:
        """Return the share of the height that was lost, in the reward or in the evaluation."""
        lost = self.trend.lost
        if self.worse and self.gain and (start := self.gain.before.estimate().mean) > 0:
            lost = max(lost, -self.gain.paired.mean / start)
        return min(1.0, lost)

    def lines(self) -> Iterator[str]:
        """Yield what happened, a sentence each, the evaluations first if they decide."""
        if self.fault:
            yield f"look at this first: {self.fault}"
        trend = self.loss or self.trend.summary()
        if self.trend.rises and self.unearned:
            trend += f"; no rollout earns anything of {' and '.join(self.unearned)}"
        for name, part in self.falling.items():
            trend += f"; {name} falls from {part.first:.3g} to {part.last:.3g}"
        for name, part in self.outweighed.items():
            trend += f"; {name} does not rise: {part.first:.3g} to {part.last:.3g}"
        evaluated = [f"evaluation {self.gain}"] if self.gain else []
        evaluated += [f"by the second grader {self.second}"] if self.second else []
        decides = self.gain is not None and self.gain.significant
        scores = sorted(self.evaluated.items(), key=lambda each: each[0] not in self.denied)
        evaluated += [f"evaluation {evaluation_text(*each)}" for each in scores[:SHOWN]]
        yield from [*evaluated, trend] if decides or self.denied else [trend, *evaluated]


def loss_text(losses: Sequence[float], length: str) -> str:
    """Return where the loss on demonstrations begins and ends, the latter as the mean of the last steps."""
    last = losses[-RECENT_STEPS:]
    if not last:
        return "the record has no loss on demonstrations"
    ends = f"from {losses[0]:.3g} to {math.fsum(last) / len(last):.3g} nats per token"
    return f"the loss on demonstrations goes {ends} over {length}"


def evaluation_text(name: str, trend: Trend) -> str:
    """Return where an evaluation of a log begins and ends, and whether that is a rise or a fall."""
    verdict = ": a rise" if trend.rises else ": a fall" if trend.falls else ""
    return f"{name}: {trend.first:.3g} → {trend.last:.3g} over {trend.length}{verdict}"


def fault_of(diagnosis: Diagnosis) -> str:
    """Return the finding of one of the rules ``NOT_LEARNING``, as text; "" without one."""
    found = {each.code: each.findings for each in diagnosis.results() if is_finding(each)}
    # an infinite number is clearest where it came first, a series of steps where it is longest
    clearest = [
        found[code][place] for code, place in zip(NOT_LEARNING, (-1, 0), strict=True) if code in found
    ]
    return f"{clearest[0].claim.what} ({clearest[0].where})" if clearest else ""
