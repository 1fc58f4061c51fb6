"""Verdicts and findings: the claim, its place, the expectation and the fix."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """The strength of a claim, in the order of a report."""

    PROVEN = "PROVEN"  # an invariant broke: this sample, this token
    EVIDENCE = "EVIDENCE"  # an anytime-valid test, with its odds
    SUSPECT = "SUSPECT"  # a statistic
    CANNOT_TELL = "CANNOT TELL"  # the data fits both a fault and a healthy run; names the deciding experiment
    FACT = "FACT"  # true of the run, and no fault: context for its numbers
    NOT_CHECKED = "NOT CHECKED"  # names a missing input
    CLEAN = "CLEAN"  # checked, without a finding


VERDICT_ORDER = tuple(Verdict)
"""The strongest first."""

STRONG_VERDICTS = (Verdict.PROVEN, Verdict.EVIDENCE)
"""Verdicts that no healthy run may have."""

FINDING_VERDICTS = (*STRONG_VERDICTS, Verdict.SUSPECT)
"""Verdicts that count as findings. SUSPECT alone makes `truing check` exit with 1 only under ``--strict``."""


class Span(NamedTuple):
    """Tokens [start, end) of a sample."""

    row: int
    start: int
    end: int


Marks = Mapping[str, tuple[tuple[int, int], ...]]
"""Samples of a finding, each with its stretches of tokens, [start, end); none is the whole sample."""


@dataclass(frozen=True)
class Claim:
    """A rule's claim on a step; ``rule_state.check`` adds the rule and the place in the run."""

    verdict: Verdict
    what: str  # one sentence, with numbers
    got: str = ""
    expected: str = ""
    remedy: str = ""  # if it differs from the rule's own
    row: int | None = None  # index of the clearest sample
    start: int = 0  # tokens of that sample: [start, end)
    end: int = 0
    spans: tuple[Span, ...] = ()  # every stretch of tokens, if there are several
    log10_odds: float | None = None  # of EVIDENCE
    specificity: float = 1.0  # higher is more specific: a proven identity beats a symptom


@dataclass(frozen=True)
class Finding:
    """A claim with its place."""

    code: str
    name: str
    stage: str
    step: int
    claim: Claim
    sample_id: str = ""
    marks: Marks = field(default_factory=dict[str, tuple[tuple[int, int], ...]])
    excerpt: tuple[
        tuple[str, bool], ...
    ] = ()  # text of tokens around the place, each with whether it is marked
    steps_before: int = 0  # of the run, in all stages

    @property
    def where(self) -> str:
        """Return stage, step from 1, and sample and tokens if known."""
        place = f"{self.stage} {self.step + 1}"
        if self.sample_id:
            place += f" sample {self.sample_id}"
        if self.claim.end > self.claim.start:
            last = self.claim.end - 1
            place += f" token {self.claim.start}" + (f"–{last}" if last > self.claim.start else "")
        return place


@dataclass(frozen=True)
class RuleResult:
    """The result of a rule over all checked steps."""

    code: str
    verdict: Verdict
    steps: int = 0  # with all inputs
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()  # inputs missing in every step
    suppressed: str = ""  # the recipe's reason
