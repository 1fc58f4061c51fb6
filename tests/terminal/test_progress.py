"""What a person sees of a run: lines that no terminal obeys, and no panel where there is nothing to show."""

import io
import re

import pytest
from rich.console import Console

from truing.record import RunWriter
from truing.terminal.progress import EventPrinter, ProgressDisplay

HOSTILE = "\x1b]0;owned\x07\x1b[2J [red]x[/red] :smile: \u202e"


def printed_line(kind, **facts):
    """The line of an event on a terminal."""
    out = io.StringIO()
    EventPrinter(Console(file=out, width=80, force_terminal=True, highlight=False))(kind, facts)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("note", {"text": HOSTILE}),
        ("finding", {"text": HOSTILE, "verdict": "PROVEN"}),
        ("fact", {"text": HOSTILE, "verdict": "FACT"}),
        ("incident", {"what": HOSTILE, "text": HOSTILE, "stage": HOSTILE, "step": 0}),
        (
            "rollback",
            {"stage": HOSTILE, "step": 3, "to": 2, "reason": HOSTILE, "kept": HOSTILE, "change": [HOSTILE]},
        ),
        ("reference", {"stage": HOSTILE, "step": 3, "text": HOSTILE}),
        ("resumed", {"stage": HOSTILE, "step": 1}),
        ("stopped", {"run": HOSTILE, "resumable": True}),
        ("evaluating", {"name": HOSTILE, "tasks": 8}),
        (
            "eval",
            {
                "name": HOSTILE,
                "estimate": {"mean": 0.5, "low": 0.25, "high": 0.75},
                "parts": {HOSTILE: 0.5},
                "failed": {},
            },
        ),
        ("loss", {"stage": HOSTILE, "step": 0, "label": HOSTILE, "text": HOSTILE}),
    ],
)
def test_what_comes_from_a_run_is_inert(kind, facts):
    line = printed_line(kind, **facts)
    assert all(char.isprintable() or char == "\n" for char in line)
    assert r"\x1b]0;owned\x07\x1b[2J [red]x[/red] :smile: \u202e" in line


def test_a_sync_of_the_reference_is_a_line():
    text = "reference set to the policy: 0 of 210 tensors differ"
    assert printed_line("reference", stage="grpo", step=19, text=text, differing=0) == f"  grpo 20: {text}\n"


def test_a_text_of_lines_stays_one_of_lines():
    assert printed_line("note", text="one\ntwo \\n") == "note: one\ntwo \\n\n"


@pytest.mark.parametrize(
    ("kind", "facts", "line"),
    [
        ("finding", {"text": "a reward is 0"}, "finding: a reward is 0"),
        ("finding", {"text": "CANNOT TELL RWD003 …", "verdict": "CANNOT TELL"}, "CANNOT TELL RWD003 …"),
        ("finding", {"text": "PROVEN MSK001 …", "verdict": "PROVEN"}, "PROVEN MSK001 …"),
        ("fact", {"text": "FACT LEN004 …", "verdict": "FACT"}, "FACT LEN004 …"),
        (
            "stopped",
            {"run": "my runs/1", "resumable": True},
            "stopped: my runs/1. Resume with --out 'my runs/1' --resume (resume=True)",
        ),
    ],
)
def test_a_line_names_its_verdict_once_and_quotes_a_path_in_a_command(kind, facts, line):
    assert printed_line(kind, **facts) == f"{line}\n"


@pytest.fixture
def on_a_terminal(monkeypatch):
    monkeypatch.setattr("truing.terminal.progress.has_terminal", lambda console: True)


EARLY = {"note": {"text": "memory, predicted: 1 GB"}, "finding": {"text": "a reward is 0"}, "learner": {}}
"""What may be told before the record begins."""


@pytest.mark.parametrize("early", [(), ("note",), ("finding", "note", "learner")])
def test_the_panel_is_drawn_from_the_start_of_the_record_on(early, tmp_path, on_a_terminal, capsys):
    with ProgressDisplay(tmp_path / "run") as display:
        for kind in early:
            display(kind, EARLY[kind])
        told = capsys.readouterr().err
        assert told.count("\n") == sum(kind != "learner" for kind in early)
        assert "panel off" not in told
        with RunWriter(tmp_path / "run") as writer:
            writer.write_run({"name": "tiny", "recipe": {"stages": []}})
            display("start", {"run": "run"})
            assert display.watcher is not None
    assert "tiny · " in capsys.readouterr().err


def test_first_tokens_are_not_among_the_lines_and_their_command_is_told_once(tmp_path, capsys):
    with ProgressDisplay(tmp_path / "my run") as display:
        for step in range(3):
            display(
                "boundary", {"stage": "sft", "step": step, "lines": [("0/sft/0/0/0: 23 prompt tokens", "")]}
            )
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.endswith(f" tokens '{tmp_path}/my run' --first\n")


def test_a_run_that_is_refused_shows_no_panel_of_whatever_lies_there(tmp_path, on_a_terminal):
    with ProgressDisplay(tmp_path) as display:
        pass
    assert display.watcher is None


def test_a_record_that_cannot_be_read_ends_the_panel_and_not_the_run(tmp_path, on_a_terminal, capsys):
    with ProgressDisplay(tmp_path) as display:
        display("start", {"run": "run"})
        display("note", {"text": "one"})
        display("note", {"text": "two"})
    assert display.live_region is None
    err = capsys.readouterr().err
    assert err.startswith("panel off: ")
    assert err.count("panel off") == 1
    assert err.endswith("note: one\nnote: two\n")


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ({"exact": 0.0, "length": 0.8}, "reward 0.080  (exact 0.000, length 0.800)  on_policy"),
        ({"exact": 0.08}, "reward 0.080  on_policy"),
        ({}, "reward 0.080  on_policy"),
    ],
)
def test_the_line_of_a_step_has_the_parts_of_its_reward_if_there_are_several(parts, shown):
    metrics = {"reward/mean": 0.08} | {f"reward_part/{name}": value for name, value in parts.items()}
    line = printed_step(metrics)
    assert line == f"grpo 3/9  {shown}  12 s left\n"


def printed_step(metrics):
    out = io.StringIO()
    EventPrinter(Console(file=out, width=200)).print_step("grpo", 3, 9, metrics, "on_policy", 12.0)
    return out.getvalue()
