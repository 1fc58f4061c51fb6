"""The page of an audit of another trainer's run."""

from pathlib import Path
from typing import Any

from truing.doctor.postmortem import diagnose_run
from truing.doctor.report.text import report_facts
from truing.doctor.rules import RULES


def audit_report(folder: Path) -> dict[str, Any]:
    """Return the report of `truing check`, with why training shows no error for each finding."""
    report = report_facts(diagnose_run(folder))
    for each in (*report["findings"], *report["facts"]):
        each["why"] = RULES[each["code"]].section("Why it is silent")
    return report
