"""The log of a lab: all entries of its ledger, oldest first."""

import math
import time

from truing.lab.report.numbers import effect_text
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Declaration, Entry, Promotion, Reproduction, Run
from truing.utils.format import with_count


def log_text(lab: Lab) -> str:
    """Return a table with a line for each entry of the ledger."""
    rows = ["| when (UTC) | hypothesis | event | result |", "|---|---|---|---|"]
    for entry in lab.history.entries:
        date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.time))
        cells = (date, entry.hypothesis, *entry_cells(lab, entry))
        rows.append(f"| {' | '.join(map(escape_cell, cells))} |")
    return "\n".join(rows)


def escape_cell(text: str) -> str:
    """Return text escaped for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def entry_cells(lab: Lab, entry: Entry) -> tuple[str, str]:
    """Return an entry as text: the event, and its result."""
    match entry:
        case Run():
            hypothesis = lab.hypotheses.get(entry.hypothesis)
            metric = hypothesis.header.metric if hypothesis else "eval/reward"
            return f"{entry.label}, seed {entry.seed} ({entry.key})", run_result_text(entry, metric)
        case Declaration():
            weak = ", underpowered" if entry.underpowered else ""
            return "declared", f"{', '.join(entry.arms)}; error {entry.error:.2g}{weak}"
        case CheckResult():
            findings = [
                f"{code} {strength}" for code, (strength, _) in entry.results.items() if strength != "CLEAN"
            ]
            clean = f"{with_count(len(entry.results) - len(findings), 'rule')} clean"
            return "check of the baseline", "; ".join([clean, *findings])
        case Promotion():
            return f"promoted {entry.arm}", ", ".join(entry.changes)
        case Reproduction():
            return f"full scale: {entry.run}", effect_text(entry.gain, entry.low, entry.high)


def run_result_text(run: Run, metric: str) -> str:
    """Return a run's metric, or its failure."""
    if run.outcome == "finished":
        return f"{metric} {run.metrics.get(metric, math.nan):.4f}"
    return f"{run.outcome}: {run.error}"
