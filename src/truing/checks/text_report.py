"""A report of checks as text."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from truing.checks.result import CheckResult

SHOWN = 3
"""Findings shown per check; JSON has all."""


def report_lines(report: Mapping[str, CheckResult]) -> Iterator[str]:
    """Yield a line for each check, one for those that lacked the same, then the findings."""
    lacking = defaultdict[tuple[str, ...], list[str]](list)
    for name, result in report.items():
        if not (result.count or result.findings or result.notes):
            lacking[result.missing].append(name)
            continue
        yield f"{_mark(result)} {name}" + (f"  {result.count}" if result.count else "")
        yield from (f"    {note}" for note in result.notes)
        yield from _missing_lines(result.missing)
    for missing, names in lacking.items():
        yield f"– {', '.join(names)}"
        yield from _missing_lines(missing)
    yield from finding_lines(report)


def finding_lines(report: Mapping[str, CheckResult]) -> Iterator[str]:
    """Yield the first findings of each check in full, each after an empty line."""
    for name, result in report.items():
        for finding in result.findings[:SHOWN]:
            yield ""
            yield f"✗ {name}: {finding.where}"
            yield f"  {finding.what}"
            details = {"got": finding.got, "expected": finding.expected, "remedy": finding.remedy}
            yield from (f"    {key}: {text}" for key, text in details.items() if text)
        if len(result.findings) > SHOWN:
            yield f"  and {len(result.findings) - SHOWN} more: --json lists all"


def _missing_lines(missing: Iterable[str]) -> Iterator[str]:
    """Yield what could not be checked, a line each."""
    return (f"    not checked: {each}" for each in missing)


def _mark(result: CheckResult) -> str:
    """Return the mark of a check: ✗ findings, ✓ clean, – nothing checked."""
    if result.findings:
        return "✗"
    return "✓" if result.count else "–"
