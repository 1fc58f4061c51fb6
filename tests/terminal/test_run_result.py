"""The line at the end of a run that says what the doctor found."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from truing.analysis.train_result import TrainResult
from truing.doctor.example_steps import example_evaluation
from truing.record import Event, RunWriter
from truing.terminal import run_result


@pytest.mark.parametrize(
    ("verdicts", "text", "style"),
    [
        ([], "3 steps judged, no rule found anything: truing check RUN", "green"),
        (["CANNOT TELL"], "3 steps judged, 1 CANNOT TELL (RWD006): truing check RUN", "yellow"),
        (["SUSPECT", "CANNOT TELL"], "3 steps judged, 1 SUSPECT (RWD006): truing check RUN", "yellow"),
        (["FACT"], "3 steps judged, no rule found anything, 1 FACT (RWD006): truing check RUN", "green"),
    ],
)
def test_each_rule_is_named_with_its_strongest_verdict(monkeypatch, verdicts, text, style):
    events = [
        Event(0.0, "finding", {"code": "RWD006", "verdict": verdict, "stage": "grpo", "step": 1})
        for verdict in verdicts
    ]
    reader = SimpleNamespace(events=lambda: events, count_steps=lambda: 3)
    monkeypatch.setattr(run_result, "RunReader", lambda run: reader)
    assert run_result.doctor_line(Path("RUN"), "truing") == (f"doctor: {text}", style)


def test_the_command_quotes_a_path_with_a_space_and_a_finding_that_was_undone_is_not_counted(tmp_path):
    with RunWriter(tmp_path / "a run") as writer:
        writer.write_run({"name": "a run"})
        writer.write_event("stage", stage="grpo", steps=4, first_step=0)
        place = {"stage": "grpo", "step": 3}
        told = dict.fromkeys(("name", "sample_id", "what", "got", "expected", "remedy", "text"), "…")
        numbers = {"start": 0, "end": 0, "log10_odds": None, "marks": {}}
        writer.write_event("finding", code="RWD006", verdict="SUSPECT", **told, **numbers, **place)
        writer.write_event("resumed", stage="grpo", step=2, suppress={})
    line, _ = run_result.doctor_line(tmp_path / "a run", "truing")
    assert line == f"doctor: 0 steps judged, no rule found anything: truing check '{tmp_path}/a run'"


@pytest.mark.parametrize("name", ["truing", "my venv/bin/truing"])
def test_the_name_of_the_command_is_quoted(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("sys.argv", [str(tmp_path / name)])
    assert shlex.split(run_result.command_name()) == [name]


def test_a_gain_that_the_second_grader_denies_leads_to_why(monkeypatch, capsys):
    def evaluated(name, share, second):
        paid = example_evaluation(name, [float(i < 100 * share) for i in range(100)])
        return replace(paid, second={task: [float(i < 100 * second)] for i, task in enumerate(paid.reward)})

    monkeypatch.setattr(run_result, "doctor_line", lambda run, command: ("doctor: fine", "green"))
    monkeypatch.setattr(run_result, "evaluate_command", lambda run, program: "truing eval")
    for second, leads in ((0.0, True), (0.9, False)):
        evaluations = {
            "base": evaluated("base", 0.4, 0.4),
            "after_grpo": evaluated("after_grpo", 0.9, second),
        }
        run_result.print_result(TrainResult(Path("RUN"), evaluations))
        said = capsys.readouterr()
        assert ("no gain by eval.grader:" in said.out + said.err) is leads
        assert "by eval.grader" in said.out + said.err
