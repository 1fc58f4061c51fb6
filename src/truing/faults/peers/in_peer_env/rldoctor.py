"""Run by the Python of rl-doctor: a log on stdin, its findings on stdout."""

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rl_doctor.diagnosis import diagnose
from rl_doctor.ingest import load_run


def findings_of(log: dict[str, Any]) -> list[dict[str, str]]:
    """Return its findings above OK, from its own reader of logs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.json"
        path.write_text(json.dumps(log))
        problems = diagnose(load_run(str(path))).problems
    return [
        {"finding": each.detector, "severity": each.severity.name, "what": each.summary} for each in problems
    ]


print(json.dumps({"version": version("rldoctor"), "said": findings_of(json.load(sys.stdin))}))
