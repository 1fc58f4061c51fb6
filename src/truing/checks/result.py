"""The result of a check: how much it covered, and its findings."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from truing.errors import DataError, TruingError

NOTHING_PLAYED = "rollouts: none ran and was graded"
NOT_DEMONSTRATED = "demonstrations: no task has one"


@dataclass(frozen=True)
class Finding:
    """One fault: location, cause and remedy."""

    where: str  # a task, a family, or a part of the template
    what: str
    got: str
    expected: str
    remedy: str

    @classmethod
    def from_error(cls, location: str, error: TruingError) -> "Finding":
        """Return the finding for an error that would stop a run."""
        got, expected = ("" if part is None else str(part) for part in (error.got, error.expected))
        return cls(location, error.what, got, expected, error.remedy)


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; it is clean if it has no finding and ``count`` > 0."""

    count: int  # items checked
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be checked, and why
    notes: tuple[str, ...] = ()  # information that is not a fault


def check_result(
    count: int, findings: Iterable[Finding], *, missing: str = "", notes: Iterable[str] = ()
) -> CheckResult:
    """Return a result; without items and a reason, it refers to an earlier check."""
    reason = missing or ("" if count else NOTHING_PLAYED)
    return CheckResult(count, tuple(findings), (reason,) if reason else (), tuple(notes))


def result_of(check: Callable[[], object], location: str, count: int = 1) -> CheckResult:
    """Return a check of a run as a result: the DataError that would stop the run is its finding."""
    try:
        check()
    except DataError as error:
        return check_result(count, [Finding.from_error(location, error)])
    return check_result(count, ())
