"""Every metric that a run may record: its name, unit, formula, and where it is absent.

A metric that cannot be computed is left out of a step, never 0 and never NaN. Placeholders in angle
brackets stand for one word. ``python -m dev.pages.metrics`` generates docs/metrics.md from this table.
"""

import difflib
import re
from collections.abc import Iterable

from truing.errors import RecordError
from truing.metrics.audit_definitions import AUDIT_METRICS
from truing.metrics.rollout_definitions import ROLLOUT_METRICS
from truing.metrics.step_definitions import STEP_METRICS

METRICS = (*ROLLOUT_METRICS, *STEP_METRICS, *AUDIT_METRICS)


def is_metric(name: str) -> bool:
    """Whether a metric is in the table."""
    return _KNOWN.fullmatch(name) is not None


def check_metric_names(names: Iterable[str]) -> None:
    """Raise if a metric is not in the table, so that every recorded metric is documented."""
    for name in names:
        if not is_metric(name):
            similar = difflib.get_close_matches(name, [metric.name for metric in METRICS], n=1)
            raise RecordError(
                "an unknown metric would be recorded",
                got=name,
                expected=f"{similar[0]}?" if similar else "a name from `truing explain metrics`",
                remedy="use a name from truing.metrics.definitions.METRICS, or add it there",
            )


def name_pattern(name: str) -> re.Pattern[str]:
    """Return a metric's name as a regular expression; ``<word>`` is one part of the path."""
    return re.compile(re.sub(r"<\w+>", "[^/]+", re.escape(name)))


_KNOWN = re.compile("|".join(name_pattern(metric.name).pattern for metric in METRICS))
