"""Events that a stranger wrote: what cannot be shown is left out and told, and costs nothing else."""

import dataclasses
import json
import time
from typing import get_args

import pytest
from shown import evaluation, finding

from truing.analysis.current_events import UndoTracker, current_evaluations, parse_mid_stage_name
from truing.analysis.valid_events import read_events
from truing.doctor.live_doctor import finding_event as told_of
from truing.doctor.report.recorded_findings import RecordedFinding, recorded_findings
from truing.doctor.verdict import Claim, Finding, Verdict
from truing.record import Event, RunWriter
from truing.record.events import PAYLOADS, VerdictName

BEFORE = {"recipe": {}, "sampling_params": {}, "judged": {}}
GOOD = {
    "numbers": {"names": ["lr"]},
    "stage": {"stage": "grpo", "steps": 3, "first_step": 0},
    "boundary": {"stage": "grpo", "step": 0, "lines": []},
    "eval": evaluation("base", 0.5),
    "finding": finding(),
    "fact": finding(verdict="FACT"),
    "incident": {"what": "held_back", "text": "t"},
    "rollback": {"stage": "grpo", "step": 3, "to": 1, "reason": "r", "kept": "abandoned/grpo-1"},
    "reference": {"stage": "grpo", "step": 3},
    "resumed": {"stage": "grpo", "step": 3},
    "longer": {"stage": "grpo", "step": 2, "before": 2, "steps": 4},
    "best": {"stage": "grpo", "step": 2},
    "gave_up": {"reason": "r"},
    "stopped": {"error": "ValueError", "reason": "r"},
    "checkpoint": {"name": "grpo-000003", "weight_digest": "d"},
    "memory": {
        "need": {"fixed": 1, "per_token": 1, "per_token_recomputed": None},
        "most": 4096,
        "fits": 2**62,
        "fits_recomputed": 0,
    },
    "loss": {"stage": "grpo", "step": 0, "label": "policy", "text": "t"},
    "forked": {"stage": "grpo", "step": 3, "parent": "runs/a", "before": BEFORE},
}


def events_of(tmp_path, *lines):
    path = tmp_path / "events.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return read_events(path)


def line(kind, payload, time=1.0):
    return {"time": time, "kind": kind, "payload": payload}


def test_what_the_doctor_reports_is_what_is_recalled():
    claim = Claim(Verdict.PROVEN, "what", "got", "expected", "remedy", start=1, end=3)
    result = told_of(Finding("LEN001", "length-collapse", "grpo", 4, claim, "s"))
    required = PAYLOADS["finding"].__required_keys__
    assert required == {item.name for item in dataclasses.fields(RecordedFinding)} - {"time", "undone"}
    assert required <= result.keys()
    assert tuple(map(str, Verdict)) == get_args(VerdictName)


@pytest.mark.parametrize("kind", PAYLOADS)
def test_an_event_without_a_field_is_left_out_and_reported(tmp_path, kind):
    assert GOOD.keys() == PAYLOADS.keys()
    events, odd = events_of(tmp_path, line(kind, GOOD[kind]), line("note", {}))
    assert ([each.kind for each in events], odd) == ([kind, "note"], [])
    for name in PAYLOADS[kind].__required_keys__:
        without = {key: value for key, value in GOOD[kind].items() if key != name}
        wrong = GOOD[kind] | {name: {"odd": 1} if name != "estimate" else 7}
        if kind == "finding" and name == "code":
            without = wrong  # without any code it is a finding of no rule, which has a text alone
        events, odd = events_of(tmp_path, line(kind, without), line("note", {}), line(kind, wrong))
        assert [each.kind for each in events] == ["note"], name
        assert [each[:6] for each in odd] == ["line 1", "line 3"]
        assert f"{kind}.{name}" in odd[0]


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
        json.dumps(
            line("eval", {"name": "base", "estimate": evaluation("", 0.5)["estimate"] | {"tasks": "8"}})
        )
        + "\n",
        '{"time": 1, "kind": "finding", "payload": {"code": 1}}\n',
        '{"time": [1], "kind": "note", "payload": {}}\n',
        json.dumps(line("finding", finding(verdict="MAYBE"))) + "\n",
        json.dumps(line("finding", finding(marks={"s": [[1]]}))) + "\n",
        json.dumps(line("finding", finding(marks={"s": [["1", 2]]}))) + "\n",
        json.dumps(line("finding", finding(marks={"s": 3}))) + "\n",
        json.dumps(line("finding", finding(marks={"\ud800": []}))) + "\n",
        json.dumps(line("boundary", {"stage": "grpo", "step": 0, "lines": [None]})) + "\n",
        json.dumps(line("finding", finding(step=10**16))) + "\n",
        '{"time": 1, "kind": "note", "payload": {"step": -12345678901234567890}}\n',
        '{"time": 1, "kind": "note", "payload": {"x": NaN}}\n',
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
            writer.write_event(kind, **payload)
    events, odd = read_events(tmp_path / "run/events.jsonl")
    assert ([each.kind for each in events], odd) == (list(GOOD), [])


def test_what_was_reported_of_a_step_is_undone_once_and_with_it_all_that_came_after():
    standing = UndoTracker()
    for step in (0, 3, 1, 3):
        standing.add("grpo", step, f"grpo {step}")
    standing.add("sft", 9, "sft 9")

    def rollback(to):
        return Event(1.0, "rollback", {"stage": "grpo", "step": 4, "to": to, "reason": "", "kept": ""})

    assert standing.undone(Event(1.0, "note", {"stage": "grpo", "to": 0})) == []
    assert standing.undone(rollback(2)) == ["grpo 3", "grpo 3"]
    assert standing.undone(rollback(2)) == []
    standing.add("grpo", 2, "grpo 2 again")
    assert standing.undone(Event(1.0, "resumed", {"stage": "grpo", "step": 1})) == ["grpo 2 again", "grpo 1"]
    assert standing.undone(rollback(0)) == ["grpo 0"]


@pytest.mark.parametrize(
    ("name", "is_at"),
    [
        ("grpo@5", ("grpo", 5)),
        ("base", None),
        ("grpo@x", None),
        ("a@b@7", ("a@b", 7)),
        ("g@" + "9" * 5000, None),
    ],
)
def test_the_name_of_an_evaluation_says_where_it_was_made(name, is_at):
    assert parse_mid_stage_name(name) == is_at


def test_many_rollbacks_of_many_findings_take_no_time_that_grows_with_their_product():
    result = finding(stage="grpo", step=0)
    events = [Event(1.0, "finding", result | {"step": step}) for step in range(20_000)]
    cut = {"stage": "grpo", "step": 30_000, "to": 30_000, "reason": "", "kept": ""}
    events += [Event(1.0, "rollback", cut)] * 20_000
    begun = time.process_time()
    assert len(recorded_findings(events)) == 20_000
    assert time.process_time() - begun < 5  # some 0.1 s; the product would take minutes


def test_a_run_that_goes_back_a_stage_undoes_what_later_stages_reported():
    standing = UndoTracker()
    for event in (Event(0.0, "stage", {"stage": stage}) for stage in ("sft", "grpo")):
        assert standing.undone(event) == []
    for stage, step, what in (("grpo", 0, "a"), ("sft", 1, "b"), ("sft", 2, "c"), ("grpo", 3, "d")):
        standing.add(stage, step, what)
    back = Event(0.0, "resumed", {"stage": "sft", "step": 2})
    assert set(standing.undone(back)) == {"a", "c", "d"}
    assert standing.undone(back) == []


def test_an_evaluation_of_a_stage_that_is_to_begin_anew_does_not_stand():
    entries = [
        Event(0.0, "stage", {"stage": "sft"}),
        Event(0.0, "eval", {"name": "after_sft"}),
        Event(0.0, "stage", {"stage": "grpo"}),
        Event(0.0, "eval", {"name": "grpo@2"}),
        Event(0.0, "resumed", {"stage": "sft", "step": 2}),
    ]
    assert list(current_evaluations(entries)) == ["after_sft"]


def test_an_evaluation_after_a_stage_that_trains_on_is_one_within_it():
    def stage(first, steps):
        return Event(0.0, "stage", {"stage": "grpo", "first_step": first, "steps": steps})

    def evaluation(name, step):
        return Event(0.0, "eval", {"name": name, "stage": "grpo", "step": step})

    def back(step):
        return Event(0.0, "resumed", {"stage": "grpo", "step": step})

    entries = [stage(0, 2), evaluation("base", 0), evaluation("after_grpo", 2), back(2)]
    assert list(current_evaluations([*entries, stage(2, 2)])) == ["base", "after_grpo"]
    longer = [*entries, stage(2, 4)]
    assert list(current_evaluations(longer)) == ["base", "grpo@2"]
    assert current_evaluations(longer)["grpo@2"]["name"] == "grpo@2"
    longer += [evaluation("after_grpo", 4)]
    assert list(current_evaluations(longer)) == ["base", "grpo@2", "after_grpo"]
    assert list(current_evaluations([*longer, back(3)])) == ["base", "grpo@2"]
    assert list(current_evaluations([*longer, back(1)])) == ["base"]
