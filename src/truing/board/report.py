"""A run as one file that needs nothing else: the board's own pages, with the answers in them."""

import base64
import hashlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from plotly.offline import get_plotlyjs

from truing.board.answers import Board
from truing.board.bundle import bundle
from truing.record.lines import dump_json

SAMPLES = 8
"""Samples of the last update that go along, beside those that a finding names."""

Asked = tuple[str, dict[str, str]]


def report(run_dir: Path) -> str:
    """The page."""
    board = Board(run_dir)
    (name,) = [each for each, path in board.places.runs.items() if path == board.places.root]
    views = {question(*each): board.answer(*each) for each in _asked(board, name)}
    scripts = [get_plotlyjs(), bundle()]
    policy = " ".join(f"'sha256-{_digest(each)}'" for each in scripts)
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


def question(view: str, query: dict[str, str]) -> str:
    """A question as the pages write it: a browser leaves a star as it is, and escapes a tilde."""
    text = urlencode(sorted(query.items()), safe="*", errors="replace").replace("~", "%7E")
    return f"{view}?{text}" if query else view


def _asked(board: Board, name: str) -> Iterator[Asked]:
    """What the file is to answer: the run, its charts, what was found and where, and its last update."""
    run = {"run": name}
    head = board.answer("run", run)
    yield "run", run
    for room in head["rooms"]:
        for chart in room["charts"]:
            yield "chart", run | {"chart": chart["name"]}
    places = {(each["stage"], each["update"]): {each["sample_id"]} - {""} for each in head["findings"]}
    for code in {each["code"] for each in head["findings"]}:
        yield "rule", {"code": code}
    if head["spans"]:
        span = head["spans"][-1]
        last = span["stage"], span["end"] - span["start"] - 1 + span["first"]
        listed = board.answer("update", _at(name, *last))["samples"][:SAMPLES]
        places.setdefault(last, set()).update(each["sample"] for each in listed)
    for (stage, update), samples in places.items():
        yield from _update(board, _at(name, stage, update), samples)


def _update(board: Board, at: dict[str, str], samples: set[str]) -> Iterator[Asked]:
    """An update, some of its samples, and their groups."""
    yield "update", at
    groups = dict[str, None]()
    for sample in sorted(samples):
        about = board.answer("sample", at | {"sample": sample})["about"]
        groups[about["group"]] = None
        yield "sample", at | {"sample": sample}
    for group in groups:
        yield "group", at | {"group": group}


def _at(run: str, stage: str, update: int) -> dict[str, str]:
    return {"run": run, "stage": stage, "update": str(update)}


def _data(value: Any) -> str:
    """JSON that no text of a run can end early."""
    return dump_json(value).decode().replace("<", "\\u003c")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
