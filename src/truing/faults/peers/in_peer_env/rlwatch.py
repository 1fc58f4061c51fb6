"""Run by the Python of rlwatch: updates on stdin, its alerts on stdout."""

import json
import os
import sys
import tempfile
from importlib.metadata import version
from typing import Any

import rlwatch


def findings_of(updates: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the first alert of each detector and severity."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # folder of its configuration and logs
        monitor = rlwatch.attach(framework="manual")
        alerts = [alert for update in updates for alert in monitor.log_step(**update)]
        monitor.stop()
    first = {(each.detector, each.severity): each.message for each in reversed(alerts)}
    return [{"finding": name, "severity": severity, "what": what} for (name, severity), what in first.items()]


print(json.dumps({"version": version("rlwatch"), "said": findings_of(json.load(sys.stdin))}))
