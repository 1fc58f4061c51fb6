"""Whether an environment and a chat template can be trained on, asked before anything is trained."""

from truing.check.finding import Checked, Finding
from truing.check.report import Report, check, check_template, facts

__all__ = ["Checked", "Finding", "Report", "check", "check_template", "facts"]
