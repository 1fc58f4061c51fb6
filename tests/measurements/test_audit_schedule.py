"""Audits depend on counted tokens: the same steps are audited at any speed, and after a resume."""

import time

import pytest
from runs import Interrupt, assert_same_run, crash_at

import truing
from truing.doctor.report.recorded_findings import current_findings, recorded_findings
from truing.measurements.audit_schedule import BUDGET_SHARES, GROUPS, AuditSchedule
from truing.record import Event, RunReader

pytestmark = pytest.mark.integration

KINDS = {"audit": 64.0, "rows": 160.0, "row_gradient": 250.0, "gradient": 300.0, "weights": 30.0}


def audited(schedule, steps, cost=1000.0):
    """Facts of steps that cost so many forwards of a token each, audited whenever it is due."""
    facts = []
    for _ in range(steps):
        costs = {"step": cost} | {name: KINDS[name] for name in schedule.due(10**9, has_reference=False)}
        schedule.count(costs)
        facts.append({"audit_cost": costs})
    return facts


def kinds(facts):
    return [set(each["audit_cost"]) - {"step"} for each in facts]


def test_the_first_steps_have_a_group_of_audits_each_and_later_ones_stay_within_the_budget():
    facts = audited(AuditSchedule(0.05), 400)
    assert kinds(facts[:5]) == [*map(set, GROUPS), set()]
    for name, share in BUDGET_SHARES.items():
        times = [n for n, each in enumerate(facts) if name in each["audit_cost"]]
        assert len(times) > 1
        for count, n in enumerate(times[1:], start=2):  # so much was computed by then, and no more audited
            assert count * KINDS[name] <= share * 0.05 * n * 1000


@pytest.mark.parametrize(("budget", "times"), [(0.0, 1), (1.0, 30)])
def test_budget_0_is_one_audit_and_budget_1_audits_all(budget, times):
    facts = audited(AuditSchedule(budget), 30)
    assert all(sum(name in each["audit_cost"] for each in facts) == times for name in BUDGET_SHARES)


def test_no_step_has_more_than_a_group_within_the_budget():
    schedule = AuditSchedule(0.5)
    facts = audited(schedule, 5)
    schedule.request()
    facts += audited(schedule, 45)
    assert all(any(each <= set(group) for group in GROUPS) for each in kinds(facts))


def test_a_request_repeats_every_audit_once_though_another_follows():
    schedule = AuditSchedule(0.0)
    audited(schedule, 10)
    schedule.request()
    first = audited(schedule, 1)
    schedule.request()  # each group in turn: the first one does not hold up the others
    assert kinds(first + audited(schedule, 5)) == [*map(set, GROUPS), set(GROUPS[0]), set()]


def test_the_first_step_has_a_forward_of_rows_beside_a_reference():
    schedule = AuditSchedule(0.0)
    due = schedule.due(100, has_reference=True)
    assert set(due) == {*GROUPS[0], "rows"}
    schedule.count({"step": 1000.0} | {name: KINDS[name] for name in due})
    later = [kind for each in audited(schedule, 4) for kind in each["audit_cost"] if kind != "step"]
    assert later == ["audit", "row_gradient"]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_last_step_of_a_short_stage_has_every_audit_that_is_missing(steps):
    schedule = AuditSchedule(0.02)
    for _ in range(steps):
        schedule.count(
            {"step": 1000.0} | {name: KINDS[name] for name in schedule.due(steps, has_reference=False)}
        )
    assert min(schedule.last_step.values()) >= 0
    assert schedule.due(steps, has_reference=False) == []


@pytest.mark.parametrize("done", [1, 2, 7, 60])
def test_a_resumed_schedule_audits_the_same_steps(done):
    whole = audited(AuditSchedule(0.05), 200)
    assert audited(AuditSchedule(0.05, whole[:done]), 200 - done) == whole[done:]


@pytest.mark.parametrize("done", [11, 12, 13, 14])
def test_a_resumed_schedule_goes_on_with_requested_audits(done):
    schedule = AuditSchedule(0.0)
    whole = audited(schedule, 10)
    schedule.request()
    whole += audited(schedule, 10)
    assert audited(AuditSchedule(0.0, whole[:done], requested_in=9), 20 - done) == whole[done:]


def test_a_run_of_an_earlier_version_without_costs_is_audited_again():
    assert AuditSchedule(0.05, [{"weights": {}}]).budgets["rows"].due(0.0)


def test_the_clock_decides_nothing(mini, tmp_path, monkeypatch):
    table = mini(doctor={"budget": 0.5}, grpo={"steps": 6})
    whole = truing.train(table, out=tmp_path / "whole", on_event=lambda *_: None).run
    real, calls = time.perf_counter, iter(range(10**9))
    monkeypatch.setattr(time, "perf_counter", lambda: real() + 7.0 * (next(calls) % 5))
    again = truing.train(table, out=tmp_path / "again", on_event=lambda *_: None).run
    assert_same_run(whole, again)


@pytest.mark.parametrize(
    "at",
    [
        ("grpo", 3),
        *(pytest.param(at, marks=pytest.mark.slow) for at in (("sft", 2), ("grpo", 1), ("grpo", 6))),
    ],
)
def test_a_resumed_run_has_the_record_of_the_whole_one(mini, tmp_path, at):
    table = mini(
        lora={"rank": 4},
        kl={"coef": 0.05},
        entropy={"coef": 0.02},
        reference={"sync_every": 3, "keep": 0.5},
        doctor={"budget": 0.4},
        sft={"steps": 4},
        grpo={"steps": 8},
        checkpoint_every=2,
    )
    whole = truing.train(table, out=tmp_path / "whole", on_event=lambda *_: None).run
    with pytest.raises(Interrupt):
        truing.train(table, out=tmp_path / "parts", on_event=crash_at(*at))
    parts = truing.train(table, out=tmp_path / "parts", resume=True, on_event=lambda *_: None).run
    assert_same_run(whole, parts)
    entries = [current_findings(RunReader(run).events()) for run in (whole, parts)]
    assert entries[0] == entries[1] != set()
    for kind in ("finding", "fact"):
        once, again = (recorded_findings(RunReader(run).events(), kind) for run in (whole, parts))
        assert once
        assert places(each for each in again if not each.undone) == places(once)
    audits = [
        sum(len(row.facts["audit_cost"]) > 1 for row in RunReader(run).steps()) for run in (whole, parts)
    ]
    assert audits[0] == audits[1] > 2  # not the first steps of the stages alone


def places(found):
    return [(each.code, each.verdict, each.stage, each.step, each.what) for each in found]


def finding(code, step, stage="grpo"):
    return Event(0.0, "finding", {"code": code, "verdict": "SUSPECT", "stage": stage, "step": step})


def test_findings_of_undone_steps_do_not_count():
    events = [finding("LEN001", 1), finding("RAT001", 4), finding("RAT001", 1, "sft")]
    undone = Event(0.0, "rollback", {"stage": "grpo", "to": 2})
    assert current_findings([*events, undone]) == {
        ("LEN001", "SUSPECT", "grpo", 1),
        ("RAT001", "SUSPECT", "sft", 1),
    }
    resumed = Event(0.0, "resumed", {"stage": "grpo", "step": 0})
    assert current_findings([*events, resumed, finding("RAT001", 5)]) == {
        ("RAT001", "SUSPECT", "sft", 1),
        ("RAT001", "SUSPECT", "grpo", 5),
    }
