"""Events that a stranger wrote: what cannot be shown is left out and told, and costs nothing else."""

import dataclasses
import json

import pytest
from shown import evaluation, finding

from truing.doctor.live import told as told_of
from truing.doctor.recall import Told
from truing.doctor.verdict import Claim, Finding, Verdict
from truing.record import RunWriter
from truing.record.told import NEEDS, VERDICTS, read_events

GOOD = {
    "numbers": {"names": ["lr"]},
    "stage": {"stage": "grpo", "steps": 3, "first_step": 0},
    "boundary": {"stage": "grpo", "step": 0, "lines": []},
    "eval": evaluation("base", 0.5),
    "finding": finding(),
    "rollback": {"stage": "grpo", "step": 3, "to": 1, "reason": "r", "kept": "abandoned/grpo-1"},
    "resumed": {"stage": "grpo", "step": 3},
    "gave_up": {"reason": "r"},
    "stopped": {"error": "ValueError", "reason": "r"},
}


def events_of(tmp_path, *lines):
    path = tmp_path / "events.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return read_events(path)


def line(kind, payload, time=1.0):
    return {"time": time, "kind": kind, "payload": payload}


def test_what_the_doctor_tells_is_what_is_recalled():
    claim = Claim(Verdict.PROVEN, "what", "got", "expected", "remedy", start=1, end=3)
    told = told_of(Finding("LEN001", "length-collapse", "grpo", 4, claim, "s"))
    assert NEEDS["finding"].keys() == {item.name for item in dataclasses.fields(Told)} - {"time", "undone"}
    assert NEEDS["finding"].keys() <= told.keys()
    assert tuple(map(str, Verdict)) == VERDICTS


@pytest.mark.parametrize("kind", NEEDS)
def test_an_event_without_a_field_is_left_out_and_told(tmp_path, kind):
    assert GOOD.keys() == NEEDS.keys()
    events, odd = events_of(tmp_path, line(kind, GOOD[kind]), line("note", {}))
    assert ([each.kind for each in events], odd) == ([kind, "note"], [])
    for name in NEEDS[kind]:
        without = {key: value for key, value in GOOD[kind].items() if key != name}
        wrong = GOOD[kind] | {name: {"odd": 1} if name != "estimate" else 7}
        if kind == "finding" and name == "code":
            without = wrong  # without any code it is a finding of no rule, which has a text alone
        events, odd = events_of(tmp_path, line(kind, without), line("note", {}), line(kind, wrong))
        assert [each.kind for each in events] == ["note"], name
        assert [each[:6] for each in odd] == ["line 1", "line 3"]
        assert name in odd[0]


@pytest.mark.parametrize(
    "bad",
    [
        "{}\n",
        "[1]\n",
        "5\n",
        '{"time": 1, "kind": "note"\n',
        '{"time": "1", "kind": "note", "payload": {}}\n',
        '{"time": NaN, "kind": "note", "payload": {}}\n',
        '{"time": 1e300, "kind": "note", "payload": {}}\n',
        '{"time": -1, "kind": "note", "payload": {}}\n',
        '{"time": true, "kind": "note", "payload": {}}\n',
        '{"time": 1, "kind": 5, "payload": {}}\n',
        '{"time": 1, "kind": "note", "payload": []}\n',
        '{"time": 1, "kind": "note", "payload": {}, "more": 1}\n',
        '{"time": 1, "kind": "numbers", "payload": {"names": [1]}}\n',
        '{"time": 1, "kind": "eval", "payload": {"name": "base", "estimate": {"mean": null}}}\n',
        '{"time": 1, "kind": "finding", "payload": {"code": 1}}\n',
        json.dumps(line("finding", finding(verdict="MAYBE"))) + "\n",
        json.dumps(line("finding", finding(marks={"s": [[1]]}))) + "\n",
        json.dumps(line("finding", finding(marks={"s": [["1", 2]]}))) + "\n",
        json.dumps(line("finding", finding(marks={"s": 3}))) + "\n",
        "\xff\n",
    ],
)
def test_a_line_that_is_no_event_costs_itself_alone(tmp_path, bad):
    events, odd = events_of(tmp_path, line("finished", {}), bad, line("note", {}))
    assert [each.kind for each in events] == ["finished", "note"]
    (told,) = odd
    assert told.startswith("line 2 of events.jsonl is left out: ")


def test_a_torn_last_line_was_never_recorded(tmp_path):
    events, odd = events_of(tmp_path, line("note", {}), '{"time": 1, "ki')
    assert (len(events), odd) == (1, [])


def test_what_a_writer_writes_is_whole(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        for kind, payload in GOOD.items():
            writer.event(kind, **payload)
    events, odd = read_events(tmp_path / "run/events.jsonl")
    assert ([each.kind for each in events], odd) == (list(GOOD), [])
