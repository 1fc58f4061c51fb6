"""Columns of steps.jsonl say what its lines say, whatever was written, cut and written on."""

import json
import math

import numpy as np
import pytest
from recorded import make_sample, make_table, write_steps

from truing.errors import RecordError
from truing.record import RunReader, RunWriter
from truing.record.steps_reader import StepsReader, declared_numbers


def opened(run):
    series = StepsReader(run)
    series.refresh(declared_numbers(RunReader(run).events()))
    return series


def same_as_the_lines(series, run):
    rows = RunReader(run).steps()
    columns = series.columns
    assert [(columns.stage_of(i), int(columns.step[i])) for i in range(len(columns))] == [
        (row.stage, row.step) for row in rows
    ]
    for i, row in enumerate(rows):
        facts = {**row.metrics, **{f"seconds/{name}": value for name, value in row.seconds.items()}}
        assert columns.loss_label[i].as_py() == row.loss_label
        for name, values in columns.numbers.items():
            expected = facts.get(name, math.nan)
            assert values[i] == expected or (math.isnan(values[i]) and math.isnan(expected)), name
        assert {name for name, value in facts.items() if not math.isnan(value)} <= columns.numbers.keys()


def write(writer, step, stage="grpo", **metrics):
    rows = [make_sample(f"{stage}/{step}")]
    writer.write_step(make_table(step, rows, stage, **metrics))


def test_columns_are_the_lines(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        for step in range(3):
            write(writer, step, "sft", **{"loss/total": step / 3})
        for step in range(4):
            write(writer, step, **{"reward/mean": 0.1 * step, "kl_all/k3": math.nan})
    series = opened(tmp_path / "run")
    same_as_the_lines(series, tmp_path / "run")
    assert series.columns.stages == [("sft", 0, 3), ("grpo", 3, 7)]
    assert series.columns.find("grpo", 2) == 5
    assert np.isnan(series.columns.column("kl_all/k3")).all()
    assert series.step_row(5) == RunReader(tmp_path / "run").steps()[5]


def test_a_run_that_names_no_numbers_is_read_line_by_line(run):
    events = [line for line in (run / "events.jsonl").read_text().splitlines(True) if '"numbers"' not in line]
    (run / "events.jsonl").write_text("".join(events))
    series = opened(run)
    assert len(series.columns) == 3
    same_as_the_lines(series, run)


def test_infinity_stays_infinity(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        write(writer, 0, **{"ratio/max": math.inf})
        write(writer, 1, **{"ratio/max": 2.0})
    series = opened(tmp_path / "run")
    assert series.columns.column("ratio/max").tolist() == [math.inf, 2.0]


def test_only_what_was_added_is_read_and_a_torn_line_is_not(tmp_path):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        write(writer, 0, **{"reward/mean": 0.5})
        series = opened(run)
        names = declared_numbers(RunReader(run).events())
        assert not series.refresh(names)
        write(writer, 1, **{"reward/mean": 0.75})
        with open(run / "steps.jsonl", "ab") as handle:
            handle.write(b'{"step": 2, "stage"')
        assert series.refresh(names)
        assert not series.refresh(names)
    assert series.columns.column("reward/mean").tolist() == [0.5, 0.75]


def test_a_number_that_is_new_is_there_for_all_lines(tmp_path):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        write(writer, 0, **{"reward/mean": 0.5})
        series = opened(run)
        write(writer, 1, **{"reward/mean": 0.6, "clip/low_share": 0.25})
        series.refresh(declared_numbers(RunReader(run).events()))
    same_as_the_lines(series, run)
    assert series.columns.column("clip/low_share")[1] == 0.25


@pytest.mark.parametrize("again", [1, 2, 5])
def test_a_run_that_was_set_back_is_read_anew(tmp_path, again):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        write_steps(writer, range(4))
        series = opened(run)
        writer.truncate_to("grpo", 2)
        for step in range(2, 2 + again):
            write(writer, step, **{"reward/mean": 100.0 + step})
        series.refresh(declared_numbers(RunReader(run).events()))
    same_as_the_lines(series, run)
    assert len(series.columns) == 2 + again


def test_a_run_that_was_set_back_to_nothing_has_no_rows(tmp_path):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        write_steps(writer, range(2))
        series = opened(run)
        writer.clear()
        assert series.refresh(declared_numbers(RunReader(run).events()))
    assert len(series.columns) == 0


def test_names_are_reported_once_and_before_the_line(tmp_path):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        writer.write_run({"run_id": "r"})
        write_steps(writer, range(2))
    with RunWriter(run, resume=True) as writer:
        write_steps(writer, [2])
    events = [event for event in RunReader(run).events() if event.kind == "numbers"]
    assert len(events) == 1
    assert set(events[0].payload["names"]) == {
        name
        for row in RunReader(run).steps()
        for name in (*row.metrics, *(f"seconds/{phase}" for phase in row.seconds))
    }


def test_a_damaged_line_is_named(run):
    lines = (run / "steps.jsonl").read_bytes().splitlines(True)
    (run / "steps.jsonl").write_bytes(lines[0] + b'{"step": 1}\n' + lines[2])
    with pytest.raises(RecordError, match="line 2"):
        StepsReader(run).refresh(())
    with pytest.raises(RecordError, match="line 2"):
        opened(run)


def test_a_step_that_is_not_there_has_no_row(run):
    series = opened(run)
    assert (series.columns.find("grpo", 9), series.columns.find("sft", 0)) == (None, None)
    assert json.loads((run / "steps.jsonl").read_text().splitlines()[2])["step"] == series.step_row(2).step


def test_before_the_first_step_there_is_no_stage(tmp_path):
    with RunWriter(tmp_path / "run"):
        pass
    columns = opened(tmp_path / "run").columns
    assert (len(columns), columns.stages) == (0, [])


@pytest.mark.parametrize(
    "bad", ["null", "[]", "5", "{}", "{}{}", " null", "{} null", "[" * 9999, "\0", '{"step": 1}', "\ud800x"]
)
@pytest.mark.parametrize("place", [0, 2])
def test_a_line_that_is_no_step_is_named_and_ends_no_process(run, bad, place):
    lines = (run / "steps.jsonl").read_bytes().splitlines(True)
    lines.insert(place, bad.encode(errors="surrogatepass") + b"\n")
    (run / "steps.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(RecordError, match=rf"line {place + 1} of .*steps\.jsonl is damaged"):
        opened(run)
    lines[place:] = [b"null\n"]
    (run / "steps.jsonl").write_bytes(b"".join(lines[place:]))
    with pytest.raises(RecordError, match="line 1 of"):
        opened(run)


def test_two_steps_in_a_line_are_none(run):
    lines = (run / "steps.jsonl").read_bytes().splitlines(True)
    (run / "steps.jsonl").write_bytes(lines[0][:-1] + lines[1] + lines[2])
    with pytest.raises(RecordError, match="line 1 of"):
        opened(run)


@pytest.mark.parametrize("size", [1, 700, 5000])
def test_however_many_bytes_are_read_at_a_time_columns_are_the_lines(tmp_path, monkeypatch, size):
    monkeypatch.setattr("truing.record.steps_reader.READ_BYTES", size)
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        for step in range(6):
            facts = {"ratio/max": math.inf if step == 2 else float(step), "lr": step / 7}
            write(writer, step, **facts)
            if step % 2:
                same_as_the_lines(opened(run), run)
        series = opened(run)
        write(writer, 6, **{"ratio/max": 6.0})
        assert series.step_row(3).step == 3
        series.refresh(declared_numbers(RunReader(run).events()))
        with open(run / "steps.jsonl", "ab") as handle:
            handle.write(b'{"step": 7, "stage"')
        assert not series.refresh(declared_numbers(RunReader(run).events()))
    same_as_the_lines(series, run)
    assert [series.step_row(i).step for i in range(7)] == list(range(7))
    assert series.columns.column("ratio/max").tolist() == [0.0, 1.0, math.inf, 3.0, 4.0, 5.0, 6.0]


def test_a_run_that_was_set_back_has_lines_of_its_own(tmp_path):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        write_steps(writer, range(4))
        series = opened(run)
        assert series.step_row(3).metrics["reward/mean"] == 0.5
        writer.truncate_to("grpo", 1)
        for step in range(1, 3):
            write(writer, step, **{"reward/mean": 100.0 + step, "lr": 0.123456789})
        series.refresh(declared_numbers(RunReader(run).events()))
    assert [series.step_row(i).metrics["reward/mean"] for i in range(3)] == [0.5, 101.0, 102.0]
