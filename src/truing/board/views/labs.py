"""A lab: its hypotheses with their status, their effects, and the runs of their arms."""

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truing.board.views.lab_figures import curves_figure, effects_figure
from truing.lab.report.text import verdict_lines
from truing.lab.store.lab import open_lab
from truing.lab.verdicts.verdict import judge


def status(root: Path) -> dict[str, Any]:
    """Return every hypothesis with its status."""
    lab = open_lab(root)
    verdicts = {name: judge(lab, each) for name, each in lab.hypotheses.items()}
    return {
        "name": lab.config.name,
        "effects": _escape_html(effects_figure(verdicts)),
        "hypotheses": [
            each.facts() | {"claim": lab.hypotheses[name].header.claim} for name, each in verdicts.items()
        ],
    }


def hypothesis(root: Path, name: str) -> dict[str, Any]:
    """Return one hypothesis with its verdict, curves, and the value of each seed."""
    lab = open_lab(root)
    source = lab.hypothesis(name)
    verdict = judge(lab, source)
    declaration = lab.declaration(source)
    arms = {} if declaration is None else declaration.arms
    runs = [run for run in lab.history.runs().values() if run.arm in arms.values()]
    return {
        "title": source.title,
        "verdict": verdict.verdict,
        "claim": source.header.claim,
        "text": source.path.read_text(encoding="utf-8"),
        "lines": [text for text, _ in verdict_lines(verdict)],
        "curves": _escape_html(curves_figure(lab, verdict)),
        "runs": [
            {
                "arm": label,
                "seed": run.seed,
                "outcome": run.outcome,
                "value": run.metrics.get(verdict.metric),
                "error": run.error,
            }
            for label, arm in arms.items()
            for run in runs
            if run.arm == arm
        ],
        "metric": verdict.metric,
    }


def _escape_html(figure: Any) -> Any:
    """Return a figure with escaped texts, because Plotly interprets some HTML."""
    if isinstance(figure, str):
        return html.escape(figure, quote=False)
    if isinstance(figure, Mapping):
        return {name: _escape_html(value) for name, value in figure.items()}
    return [_escape_html(value) for value in figure] if isinstance(figure, list | tuple) else figure
