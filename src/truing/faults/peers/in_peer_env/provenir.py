"""Run by the Python of provenir: updates on stdin, the anomalies of its flight recorder on stdout."""

import json
import sys
from importlib.metadata import version
from typing import Any

from provenir.observability.flight_recorder import FlightRecorder, RLStepMetrics


def findings_of(updates: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the first anomaly of each kind and severity."""
    recorder = FlightRecorder()
    for update in updates:
        recorder.log_step(RLStepMetrics(**update))
    first = {(each.kind, each.severity): each.detail for each in reversed(recorder.anomalies)}
    return [{"finding": kind, "severity": severity, "what": what} for (kind, severity), what in first.items()]


print(json.dumps({"version": version("provenir"), "said": findings_of(json.load(sys.stdin))}))
