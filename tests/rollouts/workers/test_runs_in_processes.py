"""Whole runs with ``episode.processes``: the same bits as in threads, and trouble costs rollouts only."""

import psutil
import pytest
from runs import Interrupt, assert_same_run, crash_at
from troubled_envs import Explosive, Troubled

import truing
from truing.record import RunReader

pytestmark = pytest.mark.integration

WORKSPACE = {
    "env": {
        "name": "workspace",
        "kinds": ["tiny-file"],
        "system": "",
        "train": 16,
        "eval": 4,
        "by_heart": 0.5,
    },
    "chat": {"tool_prompt": "brief"},
    "sampling": {"max_new_tokens": 24},
    "sft": {"steps": 2},
    "grpo": {"steps": 2},
    "eval": {"tasks": 4},
    "checkpoint_every": 1,
}


def settings(processes):
    limits = {"max_turns": 3, "timeout": 20.0}
    return {**WORKSPACE, "episode": limits | ({"processes": True, "workers": 3} if processes else {})}


def worker_processes():
    return [each for each in psutil.Process().children(recursive=True) if each.ppid() != psutil.Process().pid]


def test_a_run_in_processes_has_the_bits_of_one_in_threads_also_after_a_resume(mini, tmp_path):
    threads = truing.train(mini(**settings(False)), out=tmp_path / "threads")
    recipe = mini(**settings(True))
    with pytest.raises(Interrupt):
        truing.train(recipe, out=tmp_path / "processes", on_event=crash_at("grpo", 0))
    assert not worker_processes()
    processes = truing.train(recipe, out=tmp_path / "processes", resume=True)
    assert not worker_processes()
    assert_same_run(threads.run, processes.run)
    assert threads.evaluations["after_grpo"].parts == processes.evaluations["after_grpo"].parts
    assert truing.evaluate(processes.run).parts == truing.evaluate(threads.run).parts


def test_a_check_in_processes_reports_what_one_in_threads_does(mini):
    reports = [str(truing.check(mini(**settings(processes)))) for processes in (False, True)]
    assert reports[0] == reports[1]
    assert not worker_processes()
    own = [str(truing.check(mini(**settings(processes)), env=Troubled())) for processes in (False, True)]
    assert own[0] == own[1]


def test_a_run_goes_on_while_an_environment_crashes_its_process(mini, tmp_path):
    recipe = mini(**settings(True) | {"stages": ["grpo"]})
    run = truing.train(recipe, env=Explosive(), out=tmp_path / "run").run
    steps = list(RunReader(run).steps())
    assert len(steps) == 2
    assert any(step.metrics["ended/error"] > 0 for step in steps)
    assert all(step.metrics["ended/error"] < 1 for step in steps)
