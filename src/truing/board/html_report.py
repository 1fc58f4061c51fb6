"""Writes a run or a trace as one self-contained HTML file: the pages of the board with their data."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode

from plotly.offline import get_plotlyjs

from truing.board.queries import Board
from truing.board.script_bundle import bundle
from truing.board.views.tokens import WINDOW_TOKENS
from truing.errors import RecordError, TruingError
from truing.utils.jsonl import dump_json

LAST_STEP_SAMPLES = 8
"""Samples of the last step in the report, besides those with findings."""

Question = tuple[str, dict[str, str]]


def html_report(run_dir: Path) -> str:
    """Return the HTML of a run, or of a trace."""
    board = Board(run_dir)
    name = next((each for each, path in board.folders.runs.items() if path == board.folders.root), None)
    if name is None:
        raise RecordError(f"{run_dir} is not a readable run", got="; ".join(board.folders.notes) or None)
    with board.open_runs.locked(name) as (run_view,):
        while run_view.unread:
            run_view.refresh()
    views = dict(_answers(board, _questions(board, name)))
    scripts = [get_plotlyjs(), bundle()]
    policy = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    style = (files("truing.board") / "pages" / "style.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data: blob:;'
        f" style-src 'unsafe-inline'; script-src {policy}\">"
        f"<title>truing report</title><style>{style}</style>"
    )
    body = (
        '<header id="top"></header><main id="page" tabindex="-1"></main>'
        f'<script type="application/json" id="views">{_data(views)}</script>'
        f'<script type="application/json" id="reported">{_data({"run": name})}</script>'
        f'<script>{scripts[0]}</script><script type="module">{scripts[1]}</script>'
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _answers(board: Board, questions: Iterable[Question]) -> Iterator[tuple[str, Any]]:
    """Yield questions with their answers; those without are left out, and the page shows that."""
    for each in questions:
        with suppress(TruingError):
            yield question(*each), board.answer(*each)


def question(view: str, query: dict[str, str]) -> str:
    """Return a question as the pages encode it: as browsers encode forms."""
    arguments = sorted((name, value) for name, value in query.items() if value)
    text = urlencode(
        arguments,
        quote_via=lambda value, *_: quote_plus(value, safe="*", errors="replace").replace("~", "%7E"),
    )
    return f"{view}?{text}" if text else view


def _questions(board: Board, name: str) -> Iterator[Question]:
    """Yield the questions that the report answers: the run, charts, findings, and the last step."""
    run = {"run": name}
    head = board.answer("run", run)
    yield "run", run
    yield "forks", run
    yield "words", {}
    for group in head["rooms"]:
        for chart in group["charts"]:
            yield "chart", run | {"chart": chart["name"]}
    steps: dict[tuple[str, int], list[tuple[str, int]]] = {}  # samples of each step, with a token of each
    for finding in head["findings"]:
        yield "rule", {"code": finding["code"]}
        if not finding["undone"]:
            flagged = steps.setdefault((finding["stage"], finding["step"]), [])
            flagged.append((finding["sample_id"], finding["start"]))
            flagged += [
                (sample["sample"], sample["token"] or 0) for sample in finding["samples"][:LAST_STEP_SAMPLES]
            ]
    last = [
        (span["stage"], (span["numbers"] or [span["end"] - span["start"] - 1 + span["first"]])[-1])
        for span in head["spans"][-1:]
    ]
    for key in last:
        steps.setdefault(key, [])
    for key, samples in steps.items():
        yield from _step_questions(
            board, _step_query(name, *key), samples, LAST_STEP_SAMPLES if key in last else 0
        )


def _step_questions(
    board: Board, query: dict[str, str], flagged: Sequence[tuple[str, int]], last_count: int
) -> Iterator[Question]:
    """Yield a step, some of its samples with the tokens of findings, and their groups."""
    yield "step", query
    try:
        samples_json = board.answer("step", query)["samples"]
    except TruingError:  # its page shows why
        yield "numbers", query
        return
    groups = {each["sample"]: each["group"] for each in samples_json}
    candidates = [*(sample for sample, _ in flagged), *list(groups)[:last_count]]
    samples = [each for each in dict.fromkeys(candidates) if each in groups]
    for sample in samples:
        yield "sample", query | {"sample": sample}
    for sample, token in flagged:
        if token >= WINDOW_TOKENS:  # a long sample: its first window, and those with findings
            yield "sample", query | {"sample": sample, "token": str(token)}
    for group in dict.fromkeys(groups[sample] for sample in samples):
        yield "group", query | {"group": group}


def _step_query(run: str, stage: str, number: int) -> dict[str, str]:
    return {"run": run, "stage": stage, "step": str(number)}


def _data(value: Any) -> str:
    """Return JSON that is safe inside a script element."""
    return dump_json(value).decode().replace("<", "\\u003c")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
