"""verl's console: ``step:3 - actor/pg_loss:0.01 - critic/score/mean:0.5``, after ray's ``(… pid=…)``.

``trainer.logger=["console"]`` prints it (verl 0.8, verl/utils/logger/aggregate_logger.py).
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from truing.doctor.importers.python_literals import VALUE

if TYPE_CHECKING:
    from truing.doctor.importers.console import Line

LINE = re.compile(r"(?:^|[\s\])])step:(\d+)\s+-\s+(.*)$")
METRIC = re.compile(rf"(?:^|\s-\s)([^\s:]+):{VALUE}(?![\w.])", re.IGNORECASE)


def records(lines: "Sequence[Line]") -> list[tuple[str, dict[str, Any]]]:
    """Return the steps of a console log."""
    matches = ((line, LINE.search(line.text)) for line in lines)
    return [
        (line.where, {**dict(METRIC.findall(hit[2])), "step": int(hit[1])})  # as texts: 0.000 is rounded
        for line, hit in matches
        if hit and METRIC.search(hit[2])
    ]
