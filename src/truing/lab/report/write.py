"""The derived files of a lab, rewritten from hypotheses and ledger."""

import math
import time
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from truing.errors import LabError
from truing.lab.report.numbers import effect_text, sensitivity_text
from truing.lab.report.text import step_lines, verdict_lines
from truing.lab.run.plan import plan
from truing.lab.store.lab import LOG, README, Lab
from truing.lab.store.ledger import CheckResult, Declaration, Entry, Run
from truing.lab.verdicts.verdict import HypothesisVerdict, judge
from truing.utils.atomic_files import write_atomically
from truing.utils.format import with_count

BLOCK_BEGIN, BLOCK_END = (
    "<!-- truing lab: below is written by `truing lab report` -->",
    "<!-- truing lab: end -->",
)
"""The report owns the text between these marks; the rest of a file is the team's."""

STATUS_ICONS = {
    "VALIDATED": "✅",
    "PARTIALLY VALIDATED": "✅",
    "INVALIDATED": "❌",
    "TESTING": "🧪",
    "PENDING": "⏳",
    "INCONCLUSIVE": "🤔",
}


def write_report(lab: Lab) -> list[Path]:
    """Write every derived file; return their paths."""
    verdicts = {name: judge(lab, each) for name, each in lab.hypotheses.items()}
    texts = {
        lab.root / README: _replace_block(
            lab.root / README, readme_text(lab.config.name), status_text(lab, verdicts)
        ),
        lab.root / LOG: _replace_block(lab.root / LOG, "# Experiments\n", log_text(lab)),
    }
    for each, verdict in zip(lab.hypotheses.values(), verdicts.values(), strict=True):
        result = "\n".join(["## Result", "", *(_bullet(text) for text, _ in verdict_lines(verdict))])
        texts[each.path] = _replace_block(each.path, f"# {each.title}\n", result)
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode())
    return list(texts)


def readme_text(name: str) -> str:
    """Return a lab's README before the first run."""
    text = (files("truing.lab") / "templates" / README).read_text(encoding="utf-8")
    return Template(text).substitute(name=name)


def _replace_block(path: Path, default: str, text: str) -> str:
    """Return the file with its block replaced, from first to last mark: a merge may leave two blocks."""
    page = path.read_text(encoding="utf-8") if path.exists() else default
    block = f"{BLOCK_BEGIN}\n\n{text.strip()}\n\n{BLOCK_END}"
    if BLOCK_BEGIN not in page and BLOCK_END not in page:
        return f"{page.rstrip()}\n\n{block}\n"
    if not -1 < page.find(BLOCK_BEGIN) < page.rfind(BLOCK_END):
        raise LabError(
            f"{path} has one mark without the other, so the report's block is unknown",
            expected=f"{BLOCK_BEGIN} … {BLOCK_END}",
            remedy="delete the remaining mark; the report then writes a new block at the end",
        )
    return page[: page.index(BLOCK_BEGIN)] + block + page[page.rindex(BLOCK_END) + len(BLOCK_END) :]


def status_text(lab: Lab, verdicts: Mapping[str, HypothesisVerdict]) -> str:
    """Return the status table and the roadmap."""
    rows = [
        "## Status",
        "",
        "| Hypothesis | Priority | Status | Evidence | Effect | Notes |",
        "|---|---|---|---|---|---|",
    ]
    for name, hypothesis in lab.hypotheses.items():
        verdict = verdicts[name]
        status = f"{STATUS_ICONS[verdict.verdict]} {verdict.verdict.capitalize()}"
        detects = f"; it {sensitivity_text(verdict.mde)}" if verdict.verdict == "INCONCLUSIVE" else ""
        notes = f"{verdict.because}{detects}"
        rows.append(
            f"| [{name.upper()}: {hypothesis.title}]({hypothesis.path.relative_to(lab.root).as_posix()}) |"
            f" {hypothesis.header.priority.upper()} | {status} |"
            f" {verdict.quality} | {effect_text(verdict.effect, verdict.low, verdict.high)} |"
            f" {_escape_cell(notes)} |"
        )
    steps = [text for text, _ in step_lines(plan(lab), cost=False)]
    roadmap = [f"   - {line.strip()}" if line.startswith("   ") else line for line in steps]
    return "\n".join([*rows, "", "## Roadmap", "", *(roadmap or ["No open step."])])


def _bullet(text: str) -> str:
    return f"- {text.strip()}" if text.startswith("  ") else f"**{text}**\n"


def log_text(lab: Lab) -> str:
    """Return a table with a line for each entry of the ledger."""
    rows = ["| when (UTC) | hypothesis | event | result |", "|---|---|---|---|"]
    for entry in lab.history.entries:
        date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.time))
        cells = (date, entry.hypothesis, *_entry_cells(lab, entry))
        rows.append(f"| {' | '.join(map(_escape_cell, cells))} |")
    return "\n".join(rows)


def _escape_cell(text: str) -> str:
    """Return text escaped for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def _entry_cells(lab: Lab, entry: Entry) -> tuple[str, str]:
    """Return an entry as text: the event, and its result."""
    match entry:
        case Run():
            hypothesis = lab.hypotheses.get(entry.hypothesis)
            metric = hypothesis.header.metric if hypothesis else "eval/reward"
            result = (
                f"{metric} {entry.metrics.get(metric, math.nan):.4f}"
                if entry.outcome == "finished"
                else f"{entry.outcome}: {entry.error}"
            )
            return f"{entry.label}, seed {entry.seed} ({entry.key})", result
        case Declaration():
            weak = ", underpowered" if entry.underpowered else ""
            return "declared", f"{', '.join(entry.arms)}; error {entry.error:.2g}{weak}"
        case CheckResult():
            findings = [
                f"{code} {strength}" for code, (strength, _) in entry.results.items() if strength != "CLEAN"
            ]
            clean = f"{with_count(len(entry.results) - len(findings), 'rule')} clean"
            return "check of the baseline", "; ".join([clean, *findings])
