"""The log of a lab: everything that was done, oldest first."""

import math
import time

from truing.lab.report.numbers import effect_text
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Declaration, Entry, Promotion, Reproduction, Run
from truing.utils.format import with_count


def log_text(lab: Lab) -> str:
    """A table with a line for each entry of the ledger."""
    rows = ["| when (UTC) | hypothesis | what | came to |", "|---|---|---|---|"]
    for entry in lab.history.entries:
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.time))
        cells = (when, entry.hypothesis, *entry_cells(lab, entry))
        rows.append(f"| {' | '.join(map(escape_cell, cells))} |")
    return "\n".join(rows)


def escape_cell(text: str) -> str:
    """Text as a table can hold it."""
    return text.replace("|", "\\|").replace("\n", " ")


def entry_cells(lab: Lab, entry: Entry) -> tuple[str, str]:
    """An entry in words: what was done, what it came to."""
    match entry:
        case Run():
            known = lab.hypotheses.get(entry.hypothesis)
            metric = known.header.metric if known else "eval/reward"
            return f"{entry.label}, seed {entry.seed} ({entry.key})", run_result_text(entry, metric)
        case Declaration():
            weak = ", underpowered" if entry.underpowered else ""
            return "declared", f"{', '.join(entry.arms)}; error {entry.error:.2g}{weak}"
        case CheckResult():
            loud = [
                f"{code} {strength}" for code, (strength, _) in entry.results.items() if strength != "CLEAN"
            ]
            told = f"{with_count(len(entry.results) - len(loud), 'rule')} clean"
            return "check of the baseline", "; ".join([told, *loud])
        case Promotion():
            return f"promoted {entry.arm}", ", ".join(entry.changes)
        case Reproduction():
            return f"full scale: {entry.run}", effect_text(entry.gain, entry.low, entry.high)


def run_result_text(run: Run, metric: str) -> str:
    """A run's metric, or how it failed."""
    if run.outcome == "finished":
        return f"{metric} {run.metrics.get(metric, math.nan):.4f}"
    return f"{run.outcome}: {run.error}"
