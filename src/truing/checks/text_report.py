"""A report of checks as text."""

from collections.abc import Iterator, Mapping

from truing.checks.result import CheckResult

SHOWN = 3
"""Findings shown per check; JSON has all."""


def report_lines(report: Mapping[str, CheckResult]) -> Iterator[str]:
    """Yield a line for each check, then its findings."""
    for name, result in report.items():
        yield f"{_mark(result)} {name}" + (f"  {result.count}" if result.count else "")
        yield from (f"    {note}" for note in result.notes)
        yield from (f"    not checked: {missing}" for missing in result.missing)
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


def _mark(result: CheckResult) -> str:
    """Return the mark of a check: ✗ findings, ✓ clean, – nothing checked."""
    if result.findings:
        return "✗"
    return "✓" if result.count else "–"
