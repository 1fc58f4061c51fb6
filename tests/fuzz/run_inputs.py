"""Run directories, as commands and the board read them, and requests to the board."""

import functools
import json
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import typer
from mutate import change_bytes, change_file
from runs import MINI

import truing
from truing.board.queries import RUN_PAIR_VIEWS, RUN_VIEWS, Board
from truing.cli import app
from truing.errors import TruingError
from truing.utils.jsonl import dump_json


@functools.cache
def _run():

    folder = Path(tempfile.mkdtemp()) / "run"
    truing.train(MINI, out=folder, on_event=lambda kind, facts: None)
    return folder


COMMANDS = {
    "check": ("check", "RUN"),
    "why": ("why", "RUN"),
    "tokens": ("tokens", "RUN"),
    "scorecard": ("scorecard", "RUN"),
    "profile": ("profile", "RUN"),
    "compare": ("compare", "RUN", "RUN"),
    "report": ("report", "RUN", "--out", "RUN/report.html"),
    "tail": ("tail", "RUN", "--once"),
    "export": ("export", "RUN", "--to", "RUN/model"),
}


def make_run(rng, folder):
    shutil.copytree(_run(), folder / "run")
    files = [path for path in sorted((folder / "run").rglob("*")) if path.is_file()]
    facts = [path for path in files if path.suffix in (".json", ".jsonl", ".toml") or path.name == "last"]
    change_file(rng, rng.choice(facts if rng.random() < 0.8 else files))
    if rng.random() < 0.3:
        shutil.rmtree(folder / "run/rollouts", ignore_errors=True)
    (folder / "command").write_text(rng.choice(["board", *COMMANDS]))


def read_run(folder):
    command = (folder / "command").read_text()
    if command == "board":
        return _board_answers(folder)
    return _command([word.replace("RUN", str(folder / "run")) for word in COMMANDS[command]])


def _command(words):
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), suppress(SystemExit, typer.Exit):
        app(words, standalone_mode=False)


def _board_answers(folder):

    query = {"run": "run", "stage": "grpo", "step": "1", "sample": "0/grpo/0/0/0", "group": "0/grpo/0/0"}
    board = Board(folder)
    for view in (*RUN_VIEWS, "runs"):
        with suppress(TruingError):
            dump_json(board.answer(view, query | {"chart": "lr", "number": "lr"}))


def make_request(rng, folder):
    query = {"run": "run", "stage": "grpo", "step": "1", "sample": "0/grpo/0/0/0", "group": "0/grpo/0/0"}
    query |= {
        "chart": "lr",
        "number": "lr",
        "from": "0",
        "to": "3",
        "token": "0",
        "a": "run",
        "b": "run",
        "code": "MSK003",
    }
    key = rng.choice(sorted(query))
    query[key] = change_bytes(rng, query[key].encode()).decode(errors="replace")
    (folder / "query.json").write_text(json.dumps(query))


def read_request(folder):

    query = json.loads((folder / "query.json").read_text())
    for view in (*RUN_VIEWS, *RUN_PAIR_VIEWS, "runs", "lab", "audit", "rule", query["chart"]):
        with suppress(TruingError):
            _board().answer(view, query)


@functools.cache
def _board():

    return Board(_run().parent)
