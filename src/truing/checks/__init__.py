"""Whether an environment and a chat template can be trained on, asked before anything is trained."""

from truing.checks.report import CheckReport, check, check_tasks, evenly_spaced, report_json
from truing.checks.result import CheckResult, Finding

__all__ = ["CheckReport", "CheckResult", "Finding", "check", "check_tasks", "evenly_spaced", "report_json"]
