"""Run by the Python of rlprobe: the rows of a recording on stdin, its findings on stdout."""

import json
import sys
import tempfile
from importlib.metadata import version
from typing import Any

from rlprobe.doctor import diagnose
from rlprobe.recorder import Recorder


def findings_of(run: dict[str, Any]) -> list[dict[str, str]]:
    """Return its findings in a recording by its own recorder."""
    with tempfile.TemporaryDirectory() as folder:
        with Recorder(folder, algorithm=run["algorithm"], capture_env=False) as recorder:
            for row in run["steps"]:
                recorder.log_step(**row)
        problems = diagnose(folder)
    return [
        {"finding": each.signature_id, "severity": each.severity, "what": each.explanation}
        for each in problems
    ]


print(json.dumps({"version": version("rlprobe"), "said": findings_of(json.load(sys.stdin))}))
