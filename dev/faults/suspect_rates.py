"""Count how often healthy runs show a rule's SUSPECT, for reports.

``python -m dev.faults.suspect_rates docs/detection-matrix.md LOGS`` writes
src/truing/doctor/report/healthy_rates.toml to stdout. LOGS is a folder with published logs: ``index.jsonl``
names each ``file`` and its ``label_from_reward``.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.importers.log import json_lines
from truing.doctor.report.healthy_rates import Rates
from truing.doctor.verdict import Verdict

HEADING = "| healthy run |"
SUSPECTED = re.compile(r"SUSPECT (\w+)")
JUDGED = re.compile(r"^\d+ rules: (.*)$", re.MULTILINE)


def run_rates(page: str) -> Rates:
    """Return the rates in the healthy runs of the detection matrix, for the rules that it was made with."""
    (judged,) = JUDGED.findall(page)
    rows = [row for row in page.partition(HEADING)[2].splitlines()[2:] if row.startswith("|")]
    counts = Counter(code for row in rows for code in set(SUSPECTED.findall(row)))
    return {code: (counts[code], len(rows)) for code in judged.split()}


def log_rates(folder: Path) -> Rates:
    """Return the rates in the logs labelled healthy, for the rules that could judge one of them."""
    records = [record for _, record in json_lines(folder / "index.jsonl")]
    healthy = [each["file"] for each in records if each.get("label_from_reward", "").startswith("healthy")]
    results = [each for file in healthy for each in diagnose_log(folder / file).diagnosis.results()]
    judged = Counter(each.code for each in results if each.verdict is not Verdict.NOT_CHECKED)
    shown = Counter(each.code for each in results if each.verdict is Verdict.SUSPECT)
    return {code: (shown[code], judged[code]) for code in sorted(judged)}


if __name__ == "__main__":
    print("# Written by `python -m dev.faults.suspect_rates docs/detection-matrix.md LOGS`.")
    page, logs = Path(sys.argv[1]).read_text(encoding="utf-8"), Path(sys.argv[2])
    for kind, rates in {"runs": run_rates(page), "logs": log_rates(logs)}.items():
        print(f"\n[{kind}]  # rule = [runs with its SUSPECT, runs that it judged]")
        for code, (shown, of) in rates.items():
            print(f"{code} = [{shown}, {of}]")
