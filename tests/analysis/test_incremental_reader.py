"""A run that is looked at again and again: only what is new is read, and no number is lost by that."""

import json
import math

import pytest
from recorded import make_sample, make_table

from truing.analysis.incremental_reader import IncrementalReader
from truing.errors import RecordError
from truing.record import RunWriter
from truing.utils.jsonl import dump_json


def write(writer, step, **metrics):
    rows = [make_sample(f"s{step}")]
    writer.write_step(make_table(step, rows, **metrics))


def test_only_what_moved_is_read(tmp_path, monkeypatch):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        writer.write_run({"name": "a"})
        followed, read = IncrementalReader(run), []
        monkeypatch.setattr(
            "truing.analysis.incremental_reader.read_events", lambda path: read.append(path) or ([], [])
        )
        assert followed.refresh()
        assert not followed.refresh()
        assert len(read) == 1
        write(writer, 0)
        assert followed.refresh()
        assert len(followed.columns) == 1
        assert not followed.refresh()
        writer.write_event("note", text="x")
        assert followed.refresh()
        assert len(read) == 3


def test_a_number_that_is_named_between_two_looks_is_there_in_the_end(tmp_path):
    """A writer names a number, then writes its line: who read events before that reads the line again."""
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        write(writer, 0)
        followed = IncrementalReader(run)
        followed.refresh()
        named = followed.reader.events()
        write(writer, 1, **{"ratio/max": 2.0})
        names = {name for event in named if event.kind == "numbers" for name in event.payload["names"]}
        assert followed.steps_reader.refresh(
            names
        )  # as if the events had been read before the line was written
        assert "ratio/max" not in followed.columns.numbers
        assert followed.refresh()
        values = followed.columns.column("ratio/max").tolist()
        assert math.isnan(values[0])
        assert values[1] == 2.0


def test_events_that_were_cut_back_are_read_anew(tmp_path):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        for text in ("a", "b"):
            writer.write_event("note", text=text)
    followed = IncrementalReader(run)
    followed.refresh()
    (run / "events.jsonl").write_bytes(
        dump_json({"time": 1.0, "kind": "note", "payload": {"text": "c"}}) + b"\n"
    )
    assert followed.refresh()
    assert [event.payload["text"] for event in followed.events] == ["c"]


def test_facts_are_reported_by_their_path_and_none_where_there_are_none(tmp_path):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        writer.write_run({"machine": {"device": "cpu"}, "name": "a", "versions": None})
    followed = IncrementalReader(run)
    assert followed.run_value("machine", "device") == "cpu"
    for path in (("machine", "x"), ("name", "x"), ("versions", "x"), ("x",), ("machine", "device", "x")):
        assert followed.run_value(*path) is None
    (run / "run.json").write_text(json.dumps([1]))
    with pytest.raises(RecordError, match="is damaged"):
        IncrementalReader(run).run_value("machine", "device")


@pytest.mark.parametrize("name", ["events.jsonl", "steps.jsonl"])
def test_a_file_that_is_gone_is_reported(tmp_path, name):
    run = tmp_path / "run"
    RunWriter(run).close()
    (run / name).unlink()
    with pytest.raises(RecordError, match=f"cannot read .*{name}"):
        IncrementalReader(run).refresh()
