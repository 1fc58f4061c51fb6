"""A lab as a user runs it: real processes, real runs, real interruptions."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from command import truing
from labs import HEADER, RECIPE, lab_in

from truing.errors import LabError, RecordError
from truing.lab.run.design import resolve_arm
from truing.lab.run.run_pool import RunningProcess, RunPool, slots_for
from truing.lab.run.worker import run_worker
from truing.lab.store.lab import open_lab
from truing.lab.store.ledger import Run
from truing.utils.cores import usable_cores

SHORT = HEADER.replace("seeds = 10", "seeds = 2")
SOLVES_SOME = (
    'stages=["sft", "grpo"]',
    'sft={"steps"=40, "batch_size"=6, "learning_rate"=3e-3}',
    "env.seed=1",
    "eval.samples=16",
    "eval.temperature=1.0",
)
"""So that tasks earn different rewards; where all earn the same, a lab ends at once."""


def lab_command(*words):
    return [sys.executable, "-m", "truing", "lab", *map(str, words)]


def started(folder):
    """A lab at work. Where tests run behind a script they ignore Ctrl-C; it does not."""
    return subprocess.Popen(
        lab_command("run", "h01", "--underpowered", "--jobs", 1, "--lab", folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def until(condition, seconds=120):
    """Wait for something that a process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)


@pytest.mark.slow
def test_from_plan_to_verdict(tmp_path):
    lab_in(tmp_path, {"h01": SHORT}, f"family = 1\nchanges = {json.dumps(SOLVES_SOME)}")
    planned = truing("lab", "plan", "--lab", tmp_path)
    assert "cannot decide: 2 pairs prove nothing" in planned.out
    refused = truing("lab", "run", "h01", "--lab", tmp_path)
    assert refused.code == 2
    assert "h01 cannot decide" in refused.err
    done = truing("lab", "run", "H1", "--underpowered", "--lab", tmp_path, "--json")
    assert done.code == 0, done.err
    verdict = json.loads(done.out)
    assert (verdict["verdict"], verdict["pairs"], verdict["within"]) == ("INCONCLUSIVE", 2, 1.0)
    assert verdict["criteria_met"] is None
    assert verdict["mde"] is None, "with two pairs nothing is ever seen"
    assert -1 < verdict["low"] < verdict["effect"] < verdict["high"] < 1
    runs = open_lab(tmp_path).history.entries_of(Run)
    assert len(runs) == 4
    for run in runs:
        assert len(run.curve) == 2
        assert len(run.tasks) == 4
        assert run.peak_bytes > 50e6
        assert {"reward/mean", "eval/reward", "advantage/mean_abs"} <= run.metrics.keys()
    assert not list(tmp_path.glob("experimental-results/runs/*/run/checkpoints")), "weights are not kept"
    assert "Inconclusive" in (tmp_path / "README.md").read_text()

    again = truing("lab", "run", "h01", "--lab", tmp_path)
    assert again.code == 0
    assert len(open_lab(tmp_path).history.entries_of(Run)) == 4, "what was run is not run again"
    outcome = truing("lab", "verdict", "h01", "--lab", tmp_path)
    assert "h01 Some: INCONCLUSIVE" in outcome.out
    status = truing("lab", "status", "--lab", tmp_path, "--json")
    assert json.loads(status.out)["hypotheses"][0]["verdict"] == "INCONCLUSIVE"


@pytest.mark.slow
def test_ctrl_c_loses_nothing_and_the_same_command_goes_on(tmp_path):
    lab = lab_in(tmp_path, {"h01": SHORT}, 'family = 1\nchanges = ["grpo.steps=400"]')
    process = started(tmp_path)
    lines = f"{lab.runs_folder.relative_to(tmp_path)}/*-s0/run/steps.jsonl"

    def steps():
        return sum(path.read_bytes().count(b"\n") for path in tmp_path.glob(lines))

    until(lambda: steps() >= 5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; resume with: truing lab run h01" in err
    before = steps()
    assert before >= 5
    (checkpoint,) = tmp_path.glob("experimental-results/runs/*-s0/run/checkpoints/grpo-*")
    done = int(checkpoint.name.rpartition("-")[2])

    process = started(tmp_path)
    until(lambda: steps() > before)
    process.send_signal(signal.SIGTERM)  # as a machine that shuts down does
    process.communicate(timeout=60)
    assert process.returncode == 130
    (events,) = tmp_path.glob("experimental-results/runs/*-s0/run/events.jsonl")
    resumed = [json.loads(line) for line in events.read_text().splitlines() if '"resumed"' in line]
    assert resumed[0]["payload"]["step"] == done > 0


@pytest.mark.slow
def test_a_process_that_is_killed_is_no_verdict_on_its_arm(tmp_path):
    lab_in(tmp_path, {"h01": SHORT}, 'family = 1\nchanges = ["grpo.steps=400"]')
    process = started(tmp_path)
    until(lambda: list(tmp_path.glob("experimental-results/runs/*-s0/run/steps.jsonl")))
    result = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
    os.kill(int(result.stdout.split()[0]), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "it was ended by signal 9" in err
    assert not open_lab(tmp_path).history.entries_of(Run)


@pytest.mark.slow
def test_a_crash_is_in_the_ledger_with_its_error(tmp_path):
    lab_in(tmp_path, {"h01": SHORT.replace("grpo.learning_rate=2e-3", "sampling.max_new_tokens=100000")})
    done = truing("lab", "run", "h01", "--underpowered", "--lab", tmp_path, "--json")
    assert done.code == 0, done.err
    verdict = json.loads(done.out)
    assert verdict["verdict"] == "INCONCLUSIVE"
    assert "changed, seed 0, crashed" in verdict["because"]
    failed = [run for run in open_lab(tmp_path).history.entries_of(Run) if run.outcome == "crashed"]
    assert failed
    assert failed[0].error


@pytest.mark.slow
def test_a_planted_fault_is_proven_by_its_check(tmp_path):
    header = HEADER + '\n[check]\nrules = ["MSK003"]\nsettles = true\n'
    lab_in(tmp_path, {"h01": header}, 'family = 1\nchanges = ["fault=advantage-sign"]')
    done = truing("lab", "run", "h01", "--lab", tmp_path, "--json")
    verdict = json.loads(done.out)
    assert (verdict["verdict"], verdict["by"], verdict["quality"]) == ("VALIDATED", "proof", "high")
    assert verdict["because"].startswith("MSK003")
    assert not open_lab(tmp_path).history.entries_of(Run), "nothing is trained where a proof will do"


def test_slots_are_cores_by_threads(tmp_path):
    lab = lab_in(tmp_path)
    recipe = resolve_arm(lab, "baseline", ()).recipe
    assert slots_for(recipe) == (usable_cores(), False)
    greedy = recipe.model_copy(update={"model": recipe.model.model_copy(update={"threads": 10**6})})
    assert slots_for(greedy) == (1, False)
    assert RECIPE


def test_another_run_starts_where_there_is_memory_for_it(tmp_path, monkeypatch):
    pool = RunPool(tmp_path, 3)
    assert pool.has_free_slot()
    (tmp_path / "a" / "run").mkdir(parents=True)
    pool.running.append(RunningProcess("a", {}, tmp_path / "a", 0, None, False))
    assert not pool.has_free_slot(), "the memory of a run is still unknown"
    pool.running[0].peak_bytes = 10**9
    (tmp_path / "a" / "run" / "steps.jsonl").write_text("{}\n")
    free = {"bytes": 10**10}
    monkeypatch.setattr(
        "truing.lab.run.run_pool.psutil.virtual_memory", lambda: type("M", (), {"available": free["bytes"]})
    )
    assert pool.has_free_slot()
    free["bytes"] = 10**9
    assert not pool.has_free_slot()
    pool.running.clear()


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(*given, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("truing.lab.run.run_pool.Path.mkdir", full)
    with pytest.raises(RecordError, match="No space left on device"):
        RunPool(tmp_path, 1).start("a", {})


def test_two_labs_do_not_make_the_same_runs_at_once(tmp_path):
    with (
        RunPool(tmp_path, 1),
        pytest.raises(LabError, match="another truing lab run is at work"),
        RunPool(tmp_path, 1),
    ):
        pass
    with RunPool(tmp_path, 1):
        pass  # and the lock goes with the pool


def test_a_run_that_ended_unheard_is_not_trained_again(tmp_path, monkeypatch):
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text("{}")
    (out / "events.jsonl").write_text('{"time": 0.0, "kind": "finished", "payload": {}}\n')
    spec = {"task": "train", "root": str(tmp_path), "recipe": "", "fault": "", "keep_checkpoints": False}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    monkeypatch.chdir(tmp_path)
    run_worker(tmp_path, lambda name: contextlib.nullcontext())
    assert json.loads((tmp_path / "outcome.json").read_text()) == {"outcome": "finished", "error": ""}


def test_a_disk_that_fills_up_is_no_crash_of_the_arm(tmp_path, monkeypatch):
    def full(folder, spec):
        raise RecordError("cannot write", got="No space left on device")

    monkeypatch.setattr("truing.lab.run.worker.train_arm", full)
    (tmp_path / "spec.json").write_text(json.dumps({"task": "train", "root": str(tmp_path), "fault": ""}))
    monkeypatch.chdir(tmp_path)
    run_worker(tmp_path, lambda name: contextlib.nullcontext())
    assert json.loads((tmp_path / "outcome.json").read_text())["outcome"] == "stopped"
