"""The program that kills runs: how it kills at a write, and a small share of its kills."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dev.measure.chaos import campaign
from dev.measure.chaos.forks import End, run_forked, run_ranks
from dev.measure.chaos.write_points import Plan, WritePoints
from truing.utils import jsonl


def test_a_process_is_killed_at_each_write(tmp_path):
    """They are opening, and for each line: half of it, all of it, its sync."""

    def write(send, at, effect):
        points = WritePoints(tmp_path, Plan(at, effect), lambda kind: send(effect, kind))
        points.install()
        writer = jsonl.JsonlWriter(tmp_path / "lines.jsonl")
        for number in range(2):
            writer.append({"number": number})
        send("writes", points.count)

    def ended(at, effect="kill"):
        (tmp_path / "lines.jsonl").unlink(missing_ok=True)
        end = run_forked(lambda send: write(send, at, effect), tmp_path.with_name("log"))
        return end.exit_code, end.messages

    assert ended(0) == (0, [["writes", 7]])
    for at, kind, content in (
        (1, "open", None),
        (5, "half a write", b'{"number": 0}\n{"numbe'),
        (6, "write", b'{"number": 0}\n{"number": 1}\n'),
        (7, "sync", b'{"number": 0}\n{"number": 1}\n'),
    ):
        assert ended(at) == (-9, [["kill", kind]])
        lines = tmp_path / "lines.jsonl"
        assert (lines.read_bytes() if lines.exists() else None) == content
    assert ended(5, "full") == (1, [["full", "half a write"]])


def test_ranks_end_with_the_first_that_ends(tmp_path):
    """A rank that is killed before it joins leaves the others waiting for it: the launcher ends them."""

    def one_is_killed(rank):
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    end = run_forked(lambda send: run_ranks(2, one_is_killed), tmp_path / "log")
    assert (end.exit_code, end.hung) == (-9, False)
    assert end.seconds < 30


def test_what_a_resumed_run_undoes_is_not_lost(tmp_path, monkeypatch):
    """It cuts its record to the newest checkpoint before it says so; stages after it are undone too."""
    kept_by_checkpoint, recorded = campaign.kept_by_checkpoint, campaign.recorded
    stages = ["sft", "grpo"]
    announced = {("sft", 0), ("sft", 1), ("grpo", 0), ("grpo", 1)}
    assert kept_by_checkpoint(tmp_path, announced, stages) == set()
    monkeypatch.setattr(campaign, "find_newest", lambda folder: folder / "grpo-000001")
    assert kept_by_checkpoint(tmp_path, announced, stages) == announced - {("grpo", 1)}
    end = End(-9, [["undone", "sft", 1], ["step", "sft", 1]])
    assert recorded(announced, end, stages) == {("sft", 0), ("sft", 1)}


@pytest.mark.integration
def test_runs_that_are_killed_lose_nothing(tmp_path):
    """`make chaos` kills all kinds of runs, for minutes."""
    words = ("--kills", "2", "--minutes", "5", "--only", "sft grpo", "--only", "ppo lora")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "dev.measure.chaos", *words]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "kills at writes: " in result.stdout
