"""Whether an environment and a chat template can be trained on, asked before anything is trained."""

from truing.checks.report import Report, check, check_tasks, facts, spread
from truing.checks.result import Checked, Finding

__all__ = ["Checked", "Finding", "Report", "check", "check_tasks", "facts", "spread"]
