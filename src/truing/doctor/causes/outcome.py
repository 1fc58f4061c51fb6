"""What became of a stage: its reward over the steps, and the gain of its evaluations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from truing.analysis.stage_gain import StageGain
from truing.doctor.causes.trend import Trend
from truing.doctor.diagnosis import Diagnosis, is_finding

NOT_LEARNING = ("OPT005", "OPT015")
"""Rules whose findings say that no step trains, whatever the reward does."""


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
    def fell(self) -> bool:
        """Return whether the policy lost what it could."""
        return bool(self.trend.fell) or (self.worse and not self.trend.rises)

    @property
    def learns(self) -> bool:
        """Return whether the policy gets better, and not by smaller parts of the reward alone."""
        rises = self.trend.rises or (self.better and not self.trend.fell)
        only_paid = self.unearned or self.hacked or self.unconfirmed
        return rises and not (self.worse or only_paid or self.fault)

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
        trend = self.trend.summary()
        if self.trend.rises and self.unearned:
            trend += f"; no rollout earns anything of {' and '.join(self.unearned)}"
        for name, part in self.falling.items():
            trend += f"; {name} falls from {part.first:.3g} to {part.last:.3g}"
        evaluated = [f"evaluation {self.gain}"] if self.gain else []
        evaluated += [f"by the second grader {self.second}"] if self.second else []
        decides = self.gain is not None and self.gain.significant
        yield from [*evaluated, trend] if decides else [trend, *evaluated]


def fault_of(diagnosis: Diagnosis) -> str:
    """Return the finding of one of the rules ``NOT_LEARNING``, as text; "" without one."""
    found = {each.code: each.findings for each in diagnosis.results() if is_finding(each)}
    # an infinite number is clearest where it came first, a series of steps where it is longest
    clearest = [
        found[code][place] for code, place in zip(NOT_LEARNING, (-1, 0), strict=True) if code in found
    ]
    return f"{clearest[0].claim.what} ({clearest[0].where})" if clearest else ""
