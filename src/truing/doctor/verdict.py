"""How strong a verdict is, and what a finding says: what is wrong, where, what was expected, what to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """From what stops a run to what could not be looked at; the order is that of a report."""

    PROVEN = "PROVEN"  # an invariant broke: this row, this token
    EVIDENCE = "EVIDENCE"  # an anytime-valid test, with its odds
    SUSPECT = "SUSPECT"  # a statistic
    CANNOT_TELL = (
        "CANNOT TELL"  # the data fits a fault and health alike; names the experiment that would tell
    )
    FACT = "FACT"  # true of the run, and no fault: what somebody who reads its numbers should know
    NOT_CHECKED = "NOT CHECKED"  # an input is missing, and is named
    CLEAN = "CLEAN"  # looked at, and nothing found


VERDICT_ORDER = tuple(Verdict)
"""The strongest first."""

STRONG_VERDICTS = (Verdict.PROVEN, Verdict.EVIDENCE)
"""What no healthy run may get."""

FINDING_VERDICTS = (*STRONG_VERDICTS, Verdict.SUSPECT)
"""What is told as found. SUSPECT alone makes `truing check` exit with 1 under ``--strict`` only."""


class Span(NamedTuple):
    """Tokens [start, end) of a row."""

    row: int
    start: int
    end: int


Marks = Mapping[str, tuple[tuple[int, int], ...]]
"""Samples that a finding means, each with its stretches of tokens, [start, end); none is the whole sample."""


@dataclass(frozen=True)
class Claim:
    """What a rule says of a step; ``examine`` adds which rule, and where in the run."""

    verdict: Verdict
    what: str  # one sentence, with numbers
    got: str = ""
    expected: str = ""
    remedy: str = ""  # where it is not the rule's own
    row: int | None = None  # index of the row that shows it best
    start: int = 0  # tokens of that row: [start, end)
    end: int = 0
    spans: tuple[Span, ...] = ()  # every stretch of tokens that is meant, where that is not the only one
    log10_odds: float | None = None  # of EVIDENCE
    specificity: float = 1.0  # how well this names the cause: an identity proven beats a symptom


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
    ] = ()  # text of tokens around the place, each with whether it is meant

    @property
    def where(self) -> str:
        """Stage, update from 1, sample and tokens, as far as there are any."""
        place = f"{self.stage} {self.step + 1}"
        if self.sample_id:
            place += f" sample {self.sample_id}"
        if self.claim.end > self.claim.start:
            last = self.claim.end - 1
            place += f" token {self.claim.start}" + (f"–{last}" if last > self.claim.start else "")
        return place


@dataclass(frozen=True)
class RuleResult:
    """What a rule came to over everything that was looked at."""

    code: str
    verdict: Verdict
    steps: int = 0  # that had all it needs
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()  # inputs that no step had
    suppressed: str = ""  # the recipe's reason
