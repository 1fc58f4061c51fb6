"""What a check came to: how much it looked at, and the faults that it found."""

from collections.abc import Iterable
from dataclasses import dataclass

from truing.errors import TruingError

NOTHING_PLAYED = "attempts: none could be played and graded"
NOT_DEMONSTRATED = "demonstrations: no task has one"


@dataclass(frozen=True)
class Finding:
    """One fault: what is wrong, where, and what to do."""

    where: str  # a task, a family, or a part of the template
    what: str
    got: str
    expected: str
    remedy: str

    @classmethod
    def from_error(cls, where: str, error: TruingError) -> "Finding":
        """What Truing would stop a run with."""
        told = ("" if part is None else str(part) for part in (error.got, error.expected))
        return cls(where, error.what, *told, error.remedy)


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; it is clean where nothing was found and something was looked at."""

    count: int  # how many things were looked at
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be looked at, and why
    notes: tuple[str, ...] = ()  # no fault, but worth knowing


def check_result(
    count: int, findings: Iterable[Finding], *, missing: str = "", notes: Iterable[str] = ()
) -> CheckResult:
    """A result; where nothing could be looked at and no reason is given, an earlier check tells it."""
    told = missing or ("" if count else NOTHING_PLAYED)
    return CheckResult(count, tuple(findings), (told,) if told else (), tuple(notes))
