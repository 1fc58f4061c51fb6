"""The derived files of a lab, rewritten from hypotheses and ledger."""

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from truing.errors import LabError
from truing.lab.report.html import report_page
from truing.lab.report.log import escape_cell, log_text
from truing.lab.report.numbers import effect_text, sensitivity_text
from truing.lab.report.text import contrast_lines, step_lines, verdict_lines
from truing.lab.run.plan import plan
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import FIXES, LOG, README, RESULTS, Lab
from truing.lab.store.ledger import Declaration, Promotion, Run
from truing.lab.verdicts.interaction import contrasts
from truing.lab.verdicts.promotion import fix_name, fix_text, full_scale_text
from truing.lab.verdicts.verdict import HypothesisVerdict, judge
from truing.utils.atomic_files import write_atomically

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
    results = lab.root / RESULTS
    texts = {
        lab.root / README: _replace_block(
            lab.root / README, readme_text(lab.config.name), status_text(lab, verdicts)
        ),
        lab.root / LOG: _replace_block(lab.root / LOG, "# Experiments\n", log_text(lab)),
        results / "report.md": report_text(lab, verdicts),
        results / "report.html": report_page(lab, verdicts),
    }
    for each, verdict in zip(lab.hypotheses.values(), verdicts.values(), strict=True):
        texts[each.path] = _replace_block(each.path, f"# {each.title}\n", result_text(verdict))
    for fix in lab.history.entries_of(Promotion):
        each = lab.hypotheses.get(fix.hypothesis)
        if each is None:
            continue  # its file is gone; the log keeps the promotion
        texts[lab.root / FIXES / fix_name(each)] = fix_text(lab, each, fix)
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
        rows.append(
            f"| [{name.upper()}: {hypothesis.title}]({hypothesis.path.relative_to(lab.root).as_posix()}) |"
            f" {hypothesis.header.priority.upper()} | {status} |"
            f" {verdict.quality} | {effect_text(verdict.effect, verdict.low, verdict.high)} |"
            f" {escape_cell(table_notes(lab, hypothesis, verdict))} |"
        )
    steps = [text for text, _ in step_lines(plan(lab), cost=False)]
    return "\n".join([*rows, "", "## Roadmap", "", *(_as_list(steps) or ["No open step."])])


def _as_list(lines: Sequence[str]) -> list[str]:
    """Return numbered lines unchanged, and indented lines as items below them."""
    return (
        lines and [line if not line.startswith("   ") else f"   - {line.strip()}" for line in lines]
    ) or []


def table_notes(lab: Lab, hypothesis: Hypothesis, verdict: HypothesisVerdict) -> str:
    """Return the notes of a row of the status table."""
    fixes = [full_scale_text(lab, hypothesis)] if lab.history.entries_of(Promotion, hypothesis.id) else []
    sensitivity = f"it {sensitivity_text(verdict.mde)}" if verdict.verdict == "INCONCLUSIVE" else ""
    return "; ".join(filter(None, [verdict.because, sensitivity, *fixes]))


def result_text(verdict: HypothesisVerdict) -> str:
    """Return the result section of the hypothesis's own file."""
    return "\n".join(["## Result", "", *(f"{_bullet(text)}" for text, _ in verdict_lines(verdict))])


def _bullet(text: str) -> str:
    return f"- {text.strip()}" if text.startswith("  ") else f"**{text}**\n"


def report_text(lab: Lab, verdicts: Mapping[str, HypothesisVerdict]) -> str:
    """Return the report as one page of Markdown."""
    parts = [
        f"# {lab.config.name}: report",
        "Written by `truing lab report` from the ledger.",
        status_text(lab, verdicts),
    ]
    for name, verdict in verdicts.items():
        parts.append(f"## {name.upper()}: {verdict.title}\n\n{lab.hypotheses[name].header.claim}")
        parts.append("\n".join(_bullet(text) for text, _ in verdict_lines(verdict)))
        table = pair_table(lab, lab.hypotheses[name], verdict)
        parts += [table] if table else []
    return "\n\n".join([*parts, *_interaction_sections(lab)]) + "\n"


def _interaction_sections(lab: Lab) -> Iterator[str]:
    """Yield a section for each 2 × 2 whose hypotheses still exist."""
    for declaration in lab.history.entries_of(Declaration):
        first, plus, second = declaration.hypothesis.partition("+")
        if not plus or not {first, second} <= lab.hypotheses.keys():
            continue
        pair = lab.hypotheses[first], lab.hypotheses[second]
        try:
            lines = list(contrast_lines(contrasts(lab, *pair), pair[0].header.metric))
        except LabError as error:  # their files changed; the log keeps the runs
            lines = [error.what]
        yield f"## {first.upper()} × {second.upper()}\n\n" + "\n".join(_bullet(text) for text in lines)


def pair_table(lab: Lab, hypothesis: Hypothesis, verdict: HypothesisVerdict) -> str:
    """Return a table of each arm's metric by seed; "" before the first run."""
    declaration = lab.declaration(hypothesis)
    if declaration is None:
        return ""
    runs = {label: _runs_by_seed(lab, arm) for label, arm in declaration.arms.items()}
    seeds = sorted({seed for by_seed in runs.values() for seed in by_seed})
    rows = [f"| seed | {' | '.join(runs)} |", "|---" * (len(runs) + 1) + "|"]
    for seed in seeds:
        cells = [_value(by_seed.get(seed), verdict.metric) for by_seed in runs.values()]
        rows.append(f"| {seed} | {' | '.join(cells)} |")
    return "\n".join(rows) if seeds else ""


def _runs_by_seed(lab: Lab, arm: str) -> dict[int, Run]:
    return {run.seed: run for run in lab.history.runs().values() if run.arm == arm}


def _value(run: Run | None, metric: str) -> str:
    if run is None:
        return "–"
    return f"{run.metrics.get(metric, math.nan):.4f}" if run.outcome == "finished" else run.outcome
