"""Lines of events.jsonl with values of another type are damage, and never reach who reads the events."""

import json

import pytest

from truing.errors import RecordError
from truing.record import RunReader, RunWriter


@pytest.mark.parametrize("changes", [{"time": [1.0]}, {"time": None}, {"kind": 3}, {"payload": []}])
def test_a_value_of_another_type_is_damage(tmp_path, changes):
    with RunWriter(tmp_path / "run") as writer:
        writer.write_event("note", text="first")
        writer.write_event("note", text="second")
    file = tmp_path / "run/events.jsonl"
    first, second = map(json.loads, file.read_text().splitlines())
    file.write_text("\n".join(map(json.dumps, (first | changes, second))) + "\n")
    with pytest.raises(RecordError, match=r"line [12] of .* is damaged"):
        RunReader(tmp_path / "run").events()
