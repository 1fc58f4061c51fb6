"""What runs cost is told before they start, and how it is known."""

import math
from types import SimpleNamespace

import pytest
from labs import HEADER, declared, lab_in, run_of

from truing.config import resolve, to_toml
from truing.errors import DataError
from truing.lab.report.progress import LabDisplay
from truing.lab.run.cost import check_data, cost_text, estimated_run_seconds, memory_text, run_minutes
from truing.lab.run.design import baseline_of
from truing.lab.run.worker import check
from truing.lab.store.lab import open_lab
from truing.lab.store.ledger import CheckResult


def checked(lab, **facts):
    found = {"measures": {"memory/peak": 1.5}, "run_seconds": 90.0} | facts
    return lab.with_entry(CheckResult("h01", baseline_of(lab).digest, "c", {}, seconds=9.0, **found))


def test_before_anything_ran_minutes_are_unknown_and_memory_is_that_of_shapes(tmp_path):
    text = cost_text(lab_in(tmp_path), 20, 1)
    assert text.startswith("at most 20 runs of 2 steps, minutes unknown before the first steps; ")
    assert "by their shapes" in text


def test_a_check_estimates_a_run(tmp_path):
    lab = checked(lab_in(tmp_path))
    assert cost_text(lab, 20, 2) == (
        "at most 20 runs of 2 steps, 15 min with 2 at a time (2 min a run, estimated from the two steps of"
        " the check); memory of a run: 1.50 GB, measured in the check"
    )


def test_finished_runs_measure_it_and_crashes_do_not(tmp_path):
    lab = checked(lab_in(tmp_path))
    hypothesis = lab.hypothesis("h01")
    lab = declared(lab, hypothesis)
    lab = lab.with_entry(run_of(lab, hypothesis, "changed", 0, 0.0, outcome="crashed", seconds=1.0))
    assert run_minutes(lab)[0] == 1.5
    metrics = {"eval/reward": 0.0, "memory/peak": 2.0}
    lab = lab.with_entry(run_of(lab, hypothesis, "baseline", 0, 0.0, seconds=120.0, metrics=metrics))
    assert run_minutes(lab) == (2.0, "measured, the mean of 1 run")
    assert memory_text(lab) == "2.00 GB, measured"


def test_a_check_of_another_baseline_estimates_nothing(tmp_path):
    lab = lab_in(tmp_path).with_entry(CheckResult("h01", "other", "c", {}, {}, 9.0, 90.0))
    assert math.isnan(run_minutes(lab)[0])


def test_seconds_of_a_run_by_the_steps_of_a_check(tmp_path):
    """A check of 8 answers in 4 s, of which 2 s are sampling, and 3 s of the doctor, which do not count.

    A step of the recipe has 4 × 4 = 16 answers: 8 s. Two steps take 16 s. The one evaluation, of 4 tasks,
    takes 4 × 2 ÷ 8 = 1 s, and the start 3 s. The first step of the check, which is slower, does not count.
    """
    recipe = baseline_of(lab_in(tmp_path)).recipe
    seconds = {"decode": 2.0, "backward": 2.0, "doctor": 3.0}
    first = SimpleNamespace(stage="grpo", samples=range(8), seconds={"decode": 100.0})
    last = SimpleNamespace(stage="grpo", samples=range(8), seconds=seconds)
    assert estimated_run_seconds(recipe, [first, last], 3.0) == 20.0
    assert estimated_run_seconds(recipe, [], 3.0) is None
    table = recipe.model_dump(exclude_none=True)
    both = resolve(table | {"stages": ["sft", "grpo"], "eval": {"tasks": 4, "base": True}})
    demonstrations = SimpleNamespace(stage="sft", samples=range(4), seconds={"forward": 1.0})
    # SFT's batch is 16: 4 s a step, 100 steps; three evaluations
    assert estimated_run_seconds(both, [demonstrations, last], 0.0) == 400.0 + 16.0 + 3.0


def test_a_check_measures_what_a_run_will_cost(tmp_path):
    recipe = baseline_of(lab_in(tmp_path)).recipe
    found = check(tmp_path, {"recipe": to_toml(recipe)})
    assert 0 < found["run_seconds"] < math.inf
    assert found["measures"]["memory/peak"] > 0.1


def test_data_are_found_from_any_folder(tmp_path, monkeypatch):
    """Paths of a lab's recipe are relative to the lab."""
    lab_in(tmp_path)
    (tmp_path / "rows.jsonl").write_text(
        "".join(
            f'{{"messages": [{{"role": "user", "content": "{i}"}}], "answer": "{i}"}}\n' for i in range(60)
        )
    )
    recipe = tmp_path / "recipe.toml"
    text = recipe.read_text()
    env = '[env]\nname = "dataset"\ndata = "rows.jsonl"\n'
    start, end = text.index("[env]"), text.index("[sampling]")
    recipe.write_text(text[:start] + env + text[end:])
    monkeypatch.chdir("/")
    check_data(open_lab(tmp_path))


def test_too_few_evaluation_tasks_are_told_before_the_first_run(tmp_path):
    lab_in(tmp_path, settings='family = 1\nchanges = ["eval.tasks=9"]')
    with pytest.raises(DataError, match="too few evaluation tasks"):
        check_data(open_lab(tmp_path))


def test_the_display_tells_the_cost_and_the_time_left(tmp_path, capsys, monkeypatch):
    lab = lab_in(tmp_path, {"h01": HEADER})
    hypothesis = lab.hypothesis("h01")
    lab = declared(checked(lab), hypothesis)
    job = SimpleNamespace(
        recipe=SimpleNamespace(stages=["grpo"], stage=lambda name: SimpleNamespace(steps=10))
    )
    running = SimpleNamespace(name="a", began=0.0, steps=1)
    monkeypatch.setattr("truing.lab.report.progress.time.monotonic", lambda: 60.0)
    display = LabDisplay(hypothesis, slots=1)
    display("cost", {"lab": lab})
    assert display._time_left([(job, running)], 1) == ""
    display.run_seconds.append(90.0)
    assert display._time_left([(job, running)], 2) == ", 2 min"
    assert "h01: at most 20 runs of 2 steps, 30 min with 1 at a time" in capsys.readouterr().err
