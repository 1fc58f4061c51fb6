"""Run by the Python of rlwatch: updates on stdin, the alerts that it sends on stdout."""

import json
import os
import sys
import tempfile
from importlib.metadata import version
from typing import Any

import rlwatch


def said(updates: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The first alert of each detector and severity."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # where it looks for its configuration, and keeps its logs
        monitor = rlwatch.attach(framework="manual")
        alerts = [alert for update in updates for alert in monitor.log_step(**update)]
        monitor.stop()
    first = {(each.detector, each.severity): each.message for each in reversed(alerts)}
    return [{"finding": name, "severity": severity, "what": what} for (name, severity), what in first.items()]


print(json.dumps({"version": version("rlwatch"), "said": said(json.load(sys.stdin))}))
