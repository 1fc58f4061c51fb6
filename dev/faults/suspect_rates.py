"""Count how often healthy runs show a rule's SUSPECT, for reports.

``python -m dev.faults.suspect_rates docs/detection-matrix.md LOGS`` writes
src/truing/doctor/report/healthy_rates.toml to stdout. LOGS is a folder with published logs: ``index.jsonl``
names each ``file`` and its ``label_from_reward``.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import tomli_w

from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.importers.log import json_lines
from truing.doctor.verdict import Verdict

HEADING = "| healthy run |"
SUSPECTED = re.compile(r"SUSPECT (\w+)")


def run_rates(page: str) -> dict[str, int]:
    """Return the number of healthy runs in the detection matrix, and of those with each SUSPECT."""
    rows = [row for row in page.partition(HEADING)[2].splitlines()[2:] if row.startswith("|")]
    return _counted([set(SUSPECTED.findall(row)) for row in rows])


def log_rates(folder: Path) -> dict[str, int]:
    """Return the number of logs labelled healthy, and of those with each rule's SUSPECT."""
    records = [record for _, record in json_lines(folder / "index.jsonl")]
    healthy = [each["file"] for each in records if each.get("label_from_reward", "").startswith("healthy")]
    results = [diagnose_log(folder / file).diagnosis.results() for file in healthy]
    return _counted([{each.code for each in log if each.verdict is Verdict.SUSPECT} for log in results])


def _counted(runs: list[set[str]]) -> dict[str, int]:
    """Return the number of runs, and of those with each code."""
    counts = Counter(code for each in runs for code in each)
    return {"of": len(runs)} | dict(sorted(counts.items()))


if __name__ == "__main__":
    print("# Written by `python -m dev.faults.suspect_rates docs/detection-matrix.md LOGS`.")
    rates = {
        "runs": run_rates(Path(sys.argv[1]).read_text(encoding="utf-8")),
        "logs": log_rates(Path(sys.argv[2])),
    }
    print(tomli_w.dumps(rates), end="")
