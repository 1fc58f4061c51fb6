"""The log of a lab: everything that was done, oldest first."""

import math
import time

from truing.lab.report.numbers import effect_text
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import Begun, Checked, Entry, Promoted, Reproduced, Run
from truing.utils.format import counted


def log_text(lab: Lab) -> str:
    """A table with a line for each entry of the ledger."""
    rows = ["| when (UTC) | hypothesis | what | came to |", "|---|---|---|---|"]
    for entry in lab.history.entries:
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.time))
        cells = (when, entry.hypothesis, *told(lab, entry))
        rows.append(f"| {' | '.join(map(cell, cells))} |")
    return "\n".join(rows)


def cell(text: str) -> str:
    """Text as a table can hold it."""
    return text.replace("|", "\\|").replace("\n", " ")


def told(lab: Lab, entry: Entry) -> tuple[str, str]:
    """An entry in words: what was done, what it came to."""
    match entry:
        case Run():
            known = lab.hypotheses.get(entry.hypothesis)
            metric = known.header.metric if known else "eval/reward"
            return f"{entry.label}, seed {entry.seed} ({entry.key})", came_to(entry, metric)
        case Begun():
            weak = ", underpowered" if entry.underpowered else ""
            return "declared", f"{', '.join(entry.arms)}; error {entry.error:.2g}{weak}"
        case Checked():
            loud = [
                f"{code} {strength}" for code, (strength, _) in entry.results.items() if strength != "CLEAN"
            ]
            told = f"{counted(len(entry.results) - len(loud), 'rule')} clean"
            return "check of the baseline", "; ".join([told, *loud])
        case Promoted():
            return f"promoted {entry.arm}", ", ".join(entry.changes)
        case Reproduced():
            return f"full scale: {entry.run}", effect_text(entry.gain, entry.low, entry.high)


def came_to(run: Run, metric: str) -> str:
    """A run's metric, or how it failed."""
    if run.outcome == "finished":
        return f"{metric} {run.metrics.get(metric, math.nan):.4f}"
    return f"{run.outcome}: {run.error}"
