"""An audit of another trainer's run, judged by every rule."""

from pathlib import Path
from typing import Any

from truing.doctor.postmortem import diagnose_run
from truing.doctor.report.text import report_facts
from truing.doctor.rules import RULES


def audit_report(folder: Path) -> dict[str, Any]:
    """What `truing check` says of it, and why each fault is silent."""
    told = report_facts(diagnose_run(folder))
    for each in (*told["findings"], *told["facts"]):
        each["why"] = RULES[each["code"]].section("Why it is silent")
    return told
