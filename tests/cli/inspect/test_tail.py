"""`truing tail`: from the run directory alone, during training, after its end, and after a crash."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from command import truing as command
from rich.console import Console

from truing.cli.inspect.follow import NewEventPrinter, follow
from truing.errors import RecordError
from truing.terminal.reader import RunWatcher


@pytest.fixture
def train(toml, tmp_path):
    """A training process, killed at the end of the test."""
    processes = []

    def start(*words):
        program = [
            sys.executable,
            "-m",
            "truing",
            "train",
            str(toml()),
            *words,
            "--out",
            str(tmp_path / "run"),
        ]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        processes.append(
            subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
        )
        steps = tmp_path / "run" / "steps.jsonl"
        until = time.monotonic() + 60
        while not (steps.exists() and steps.stat().st_size):
            assert time.monotonic() < until
            assert processes[-1].poll() is None
            time.sleep(0.05)
        return processes[-1], tmp_path / "run"

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def lines_of(events):
    return [json.loads(line) for line in events.read_text().splitlines()]


@pytest.mark.integration
def test_a_finished_run_shows_its_last_events_and_its_status(finished):
    outcome = command("tail", finished.run)
    assert (outcome.code, outcome.err) == (0, "")
    lines, panel = outcome.out.split("╭─", 1)
    assert "  base: reward " in lines
    assert "  after_grpo: reward " in lines
    assert "in words" not in lines
    assert panel.startswith(" mini · finished ─")
    assert "sft 3/3   grpo 3/3" in panel
    assert command("tail", finished.run, "--once").out == outcome.out


def test_json_is_a_line_with_null_for_unknown_values(finished):
    (line,) = command("tail", finished.run, "--json").out.splitlines()
    status = json.loads(line)
    assert (status["state"], status["steps"], status["at"]) == ("finished", 6, ["grpo", 3, 3])
    assert status["left"] is None
    assert status["reward"].keys() == {"mean", "low", "high", "supposes"}
    assert list(status["evaluations"]) == ["base", "after_sft", "after_grpo"]
    assert {(each["tasks"], each["samples"]) for each in status["evaluations"].values()} == {(8, 1)}
    assert "alignment" in status["scorecard"]["pass"]
    assert all(each["step"] >= 1 for each in status["findings"])


@pytest.mark.integration
def test_it_follows_another_process_and_ends_with_it(train):
    process, run = train("grpo.steps=12")
    outcome = command("tail", run)
    assert outcome.code == 0
    assert process.wait(30) == 0
    lines, panel = outcome.out.split("╭─", 1)
    assert panel.startswith(" mini · finished ─")
    assert lines.count("after_grpo: reward ") == 1
    for line in process.stderr.read().decode().splitlines():
        if "reward" in line and "after_grpo" in line:
            assert line in lines.splitlines()


@pytest.mark.slow
def test_a_run_that_is_killed_meanwhile_is_shown_as_crashed(train):
    process, run = train("grpo.steps=100000")
    killer = threading.Timer(1.0, process.send_signal, [signal.SIGKILL])
    killer.start()
    outcome = command("tail", run)
    assert outcome.code == 0
    assert "mini · crashed" in outcome.out
    assert "no process writes it" in outcome.out
    assert "s left\n" in outcome.out.split("╭─", 1)[0]  # a step was printed while it ran


def test_ctrl_c_ends_it_quietly(finished, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("truing.cli.inspect.follow.follow", interrupt)
    outcome = command("tail", finished.run)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_a_run_that_is_rolled_back_or_restarted_is_still_followed(finished, tmp_path):
    run = tmp_path / "copy"
    shutil.copytree(finished.run, run)
    whole = {name: (run / name).read_bytes().splitlines(True) for name in ("steps.jsonl", "events.jsonl")}
    out = io.StringIO()
    watcher = RunWatcher(run)
    printer = NewEventPrinter(watcher, Console(file=out, width=80), steps=False)

    def write(steps, events):
        (run / "steps.jsonl").write_bytes(b"".join(whole["steps.jsonl"][:steps]))
        (run / "events.jsonl").write_bytes(b"".join(events))
        facts = watcher.read()
        printer.print_new(facts)
        return facts.summary

    events = whole["events.jsonl"]
    undone = {"stage": "grpo", "step": 2, "to": 1, "reason": "KL rose", "kept": "abandoned/1"}
    undone["change"] = ["kl.coef=1"]
    rollback = json.dumps({"time": 1.0, "kind": "rollback", "payload": undone}).encode() + b"\n"
    assert write(6, events[:-1]).current_stage == ("grpo", 3, 3)
    assert write(4, [*events[:-1], rollback]).current_stage == ("grpo", 1, 3)
    assert out.getvalue().endswith("KL rose; undone steps: abandoned/1; from here on kl.coef=1\n")
    assert write(6, [*events[:-1], rollback, events[-1]]).state == "finished"
    before = out.getvalue().count("base: reward")
    noted = json.loads(whole["steps.jsonl"][1])["events"]
    assert write(2, events[:noted]).current_stage == ("sft", 2, 3)
    assert out.getvalue().count("base: reward") == before + 1


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        (
            "events.jsonl",
            '{"time": 1.0, "kind": "eval", "payload": {"name": "base"}}',
            "eval.estimate",
        ),
        (
            "events.jsonl",
            '{"time": 1.0, "kind": "incident", "payload": {"what": "x", "text": ""}}',
            "incident",
        ),
        ("events.jsonl", '{"time": 1.0, "kind": "finding", "payload": {"code": "X"}}', "finding."),
        ("events.jsonl", "no json", "is damaged"),
        ("steps.jsonl", "no json", "is damaged"),
        ("run.json", "[]", "is damaged"),
        ("run.json", "{", "is damaged"),
    ],
)
def test_a_damaged_file_is_named(finished, tmp_path, file, line, message):
    run = tmp_path / "copy"
    shutil.copytree(finished.run, run)
    if file == "run.json":
        (run / file).write_text(line)
    else:
        with open(run / file, "a") as handle:
            handle.write(line + "\n")
    outcome = command("tail", run)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert "expected: " in outcome.err


def test_a_folder_without_a_run_is_named(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        outcome = command("tail", folder)
        assert outcome.code == 2
        for part in ("is not a run directory", "got: no run.json", "expected: ", "remedy: "):
            assert part in outcome.err


def test_an_evaluation_without_valid_tasks_is_printed(finished, tmp_path):
    run = tmp_path / "copy"
    shutil.copytree(finished.run, run)
    estimate = {"mean": None, "low": None, "high": None, "tasks": 0}
    facts = {"name": "later", "estimate": estimate, "parts": {"exact": None}, "failed": {"t": "boom"}}
    with open(run / "events.jsonl", "a") as handle:
        handle.write(json.dumps({"time": 1.0, "kind": "eval", "payload": facts}) + "\n")
    out = io.StringIO()
    follow(RunWatcher(run), Console(file=out, width=80), once=True)
    assert "later: reward nan of 0 tasks   exact nan  (1 task failed, not counted)" in out.getvalue()


def test_a_run_of_another_version_has_no_scorecard(finished, tmp_path):
    run = tmp_path / "copy"
    shutil.copytree(finished.run, run)
    facts = json.loads((run / "run.json").read_text())
    facts["recipe"]["unheard_of"] = 1
    (run / "run.json").write_text(json.dumps(facts))
    assert RunWatcher(run).read().criteria == {}
    del facts["recipe"]
    (run / "run.json").write_text(json.dumps(facts))
    with pytest.raises(RecordError, match="has no 'recipe'"):
        RunWatcher(run).read()
