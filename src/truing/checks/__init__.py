"""Checks of an environment and a chat template before training."""

from truing.checks.report import CheckReport, check, check_tasks, evenly_spaced, report_json
from truing.checks.result import CheckResult, Finding

__all__ = ["CheckReport", "CheckResult", "Finding", "check", "check_tasks", "evenly_spaced", "report_json"]
