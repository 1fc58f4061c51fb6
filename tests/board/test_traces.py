"""A trace of another trainer has the pages of a run, which say what `truing check` says of it."""

import json
import math
import shutil

import pytest
from command import truing

from truing.board.data import trace_reader
from truing.board.data.trace_view import TraceView
from truing.board.html_report import html_report
from truing.board.queries import Board
from truing.doctor.traces.demo import SETUP, STEPS, write_trace
from truing.doctor.traces.read import trace_steps
from truing.errors import RecordError, TruingError
from truing.trace_writer import Writer
from truing.utils.jsonl import dump_json

NAME = "micro-batch-mean"


@pytest.fixture(autouse=True)
def read_at_once(monkeypatch):
    """However busy the machine is, a refresh reads a whole trace."""
    monkeypatch.setattr(trace_reader, "READ_SECONDS", math.inf)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A folder with a trace of a known bug."""
    root = tmp_path_factory.mktemp("traces")
    write_trace(root / NAME, NAME)
    return root


@pytest.fixture
def copied(faulty, tmp_path):
    """A copy of the trace that may be changed."""
    return shutil.copytree(faulty / NAME, tmp_path / "root" / NAME)


def ask(root, view, **query):
    """What a page gets, as JSON."""
    return json.loads(dump_json(Board(root).answer(view, {"run": NAME, **query})))


def bare(folder, numbers=(1,)):
    """A trace that has tokens and a mask alone."""
    writer = Writer(folder, producer="test")
    for number in numbers:
        writer.step(number, ids=[[5, 6, 7], [5, 8]], loss_mask=[[0, 1, 1], [0, 1]])
    writer.close()
    return folder


def test_a_trace_is_judged_as_the_command_judges_it(faulty):
    command = json.loads(truing("check", faulty / NAME, "--json").out)
    page = ask(faulty, "run")
    same = ("code", "name", "verdict", "stage", "sample_id", "what", "got", "expected", "remedy")
    told = [{name: each[name] for name in same} for each in page["findings"]]
    assert told == [{name: each[name] for name in same} for each in command["findings"]]
    assert told[0]["code"] == "MSK003"
    checked = page["checked"]
    assert checked == {name: command[name] for name in ("formulas", "notes", "clean", "not_checked")}
    assert "mean over micro-batches" in checked["formulas"][1]
    assert page["about"]["setup"]["clip_low"] == SETUP["clip_low"]
    assert (page["recipe"], page["scorecard"], page["trouble"], page["evaluations"]) == ("", [], "", {})


def test_a_trace_is_listed_among_the_runs(faulty):
    (line,) = ask(faulty, "runs")["runs"]
    rewards = [step.metrics["reward/mean"] for step, _ in trace_steps(faulty / NAME)]
    assert (line["run"], line["state"], line["model"], line["steps"]) == (NAME, "trace", "demo 1", STEPS)
    assert line["reward"]["mean"] == pytest.approx(sum(rewards) / STEPS)
    assert line["seconds"] is None  # a trace has no times
    assert [each["code"] for each in line["findings"]] == ["MSK003"]


def test_charts_show_what_follows_from_rows_and_what_the_trainer_wrote(faulty):
    steps = [step for step, _ in trace_steps(faulty / NAME)]
    for name, chart in (("reward/mean", "reward"), ("length/mean", "length"), ("lr", "lr")):
        series = {each["name"]: each["y"] for each in ask(faulty, "chart", chart=chart)["series"]}
        assert series[name] == [step.metrics[name] for step in steps]


def test_a_sample_shows_the_numbers_of_its_tokens(faulty):
    step, decode = next(trace_steps(faulty / NAME))
    page = ask(faulty, "step", stage="grpo", step="0")  # traces may count from 0
    assert [each["sample"] for each in page["samples"]] == [row.sample_id for row in step.samples]
    at = {"stage": "grpo", "step": "0", "sample": step.samples[0].sample_id}
    shown = ask(faulty, "sample", **at)
    part = step.part(0)
    ids = step.tokens["token_ids"][part].tolist()
    assert shown["tokens"]["texts"] == decode(ids)
    assert shown["tokens"]["trained"] == step.trained[part].int().tolist()
    for name, stream in (("new", "new_logprob"), ("ref", "ref_logprob"), ("advantage", "advantage")):
        values = shown["tokens"]["numbers"][name]
        assert values == json.loads(dump_json(step.stream(stream)[part].tolist()))
    assert shown["findings"][0]["code"] == "MSK003"
    assert shown["about"]["sampling_params"] is None
    group = ask(faulty, "group", stage="grpo", step="0", group="0")
    assert group["count"] == sum(row.group_id == "0" for row in step.samples)


def test_the_clip_of_the_declared_settings_is_marked(tmp_path):
    write_trace(tmp_path / NAME, setup=SETUP, rate=1.0)
    step = [step for step, _ in trace_steps(tmp_path / NAME)][-1]
    samples = [row.sample_id for row in step.samples]
    shown = [ask(tmp_path, "sample", stage="grpo", step=str(STEPS - 1), sample=name) for name in samples]
    assert any(any(each["tokens"]["clipped"]) for each in shown)
    assert all("ratio" in each["tokens"]["numbers"] for each in shown)


def test_a_trace_with_tokens_alone_has_the_pages_of_what_it_has(tmp_path):
    bare(tmp_path / NAME)
    page = ask(tmp_path, "run")
    assert (page["reward"], page["findings"], page["at"]) == (None, [], ["train", 1, 1])
    assert page["checked"]["formulas"] == []
    (step,) = page["spans"]
    shown = ask(tmp_path, "sample", stage=step["stage"], step="1", sample="000001.0")
    assert shown["tokens"]["texts"] == ["‹5›", "‹6›", "‹7›"]
    assert shown["tokens"]["numbers"] == {}
    assert ask(tmp_path, "forks") == {"parent": None, "experiment": None}


@pytest.mark.parametrize("view", ["samples", "tasks"])
def test_what_a_trace_has_not_is_said_in_a_line(faulty, view):
    with pytest.raises(RecordError, match="a trace has no list of all samples"):
        ask(faulty, view)


def test_steps_that_lie_apart_keep_their_numbers(tmp_path):
    bare(tmp_path / NAME, (10, 20, 25))
    (span,) = ask(tmp_path, "run")["spans"]
    assert (span["start"], span["end"], span["first"], span["numbers"]) == (0, 3, 10, [10, 20, 25])
    assert ask(tmp_path, "step", stage="train", step="20")["after"]["step"] == 25
    assert "step=25&stage" in html_report(tmp_path / NAME) or "step=25" in html_report(tmp_path / NAME)
    bare(tmp_path / "whole", (4, 5))
    assert Board(tmp_path).answer("run", {"run": "whole"})["spans"][0]["numbers"] is None


def test_a_trace_that_grows_is_read_on_and_a_changed_one_anew(faulty, copied):
    last = copied / f"{STEPS - 1:06d}.safetensors"
    hidden = last.rename(copied.parent / "later")
    view = TraceView(NAME, copied, copied.parent)
    assert view.refresh()
    judged = view.trace.judged
    assert len(view.run.columns) == STEPS - 1
    assert not view.refresh()
    hidden.rename(last)
    assert view.refresh()
    assert view.trace.judged is judged
    assert len(view.run.columns) == STEPS
    whole = TraceView(NAME, faulty / NAME, faulty)
    whole.refresh()
    assert view.checked["formulas"] == whole.checked["formulas"]
    assert view.all_findings[-1].step == whole.all_findings[-1].step
    shutil.copy(copied / "000003.safetensors", copied.parent / "same")
    shutil.move(copied.parent / "same", copied / "000003.safetensors")  # written again
    assert view.refresh()
    assert view.trace.judged is not judged
    head = json.loads((copied / "trace.json").read_text())
    head["setup"]["aggregation"] = "micro_batch_token_mean"
    (copied / "trace.json").write_text(json.dumps(head))
    assert view.refresh()
    assert view.all_findings == []


def test_a_long_trace_is_judged_in_parts(faulty, monkeypatch):
    monkeypatch.setattr(trace_reader, "READ_SECONDS", 0.0)
    board = Board(faulty)
    waiting = [board.answer("runs", {})["waiting"] for _ in range(STEPS + 1)]
    assert waiting[0] == 1
    assert waiting[-1] == 0
    assert Board(faulty).answer("run", {"run": NAME})["unread"] == STEPS - 1
    assert f'"steps": {STEPS}' in html_report(faulty / NAME)


def test_a_trace_that_cannot_be_read_is_listed_with_the_reason(copied):
    (copied / "000002.safetensors").write_bytes(b"nothing")
    (line,) = Board(copied.parent).answer("runs", {})["runs"]
    assert line["state"] == "cannot be read"
    assert "000002.safetensors cannot be read" in line["why"]
    with pytest.raises(TruingError, match=r"000002\.safetensors"):
        Board(copied.parent).answer("run", {"run": NAME})


def test_two_traces_are_compared_by_what_they_declare_and_by_token(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_reader, "READ_SECONDS", 0.0)  # as long traces, in parts
    for name in ("one", "two"):
        write_trace(tmp_path / name, setup=SETUP | ({"clip_low": 0.3} if name == "two" else {}))
    found = Board(tmp_path).answer("compare", {"a": "one", "b": "two"})
    assert [each["key"] for each in found["recipe"]] == ["setup.clip_low"]
    assert found["seeds"] == "the seeds are not known; truing lab compares several"
    assert Board(tmp_path).answer("compare_tokens", {"a": "one", "b": "two"})["first_difference"] is None


def test_a_trace_is_reported_as_one_file(faulty, tmp_path):
    result = truing("report", faulty / NAME, "--out", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert result.code == 0
    assert "MSK003" in text
    assert "mean over micro-batches of the mean over their tokens" in text
    assert "sample?run=" in text
