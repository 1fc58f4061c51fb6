"""A finding that comes back in every step is told once: the strongest, since when, and how often."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from truing.doctor.causes.explain import tainted_checkpoints
from truing.doctor.coverage import Coverage
from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.history import History
from truing.doctor.live_doctor import LiveDoctor
from truing.doctor.report.repeated_findings import findings_by_rule
from truing.doctor.report.sarif_junit import junit, sarif
from truing.doctor.report.text import report_facts, report_lines
from truing.doctor.rules import RULES
from truing.doctor.verdict import Claim, Finding, RuleResult, Verdict
from truing.types.step_table import StepTable

RECIPE = SimpleNamespace(stages=("sft", "grpo"))


def finding(verdict, step, code="REF003", stage="grpo", before=0):
    """Return a finding of a step after ``before`` steps of the stages before."""
    claim = Claim(verdict, f"what of {step}")
    return Finding(code, "a-name", stage, step, claim, steps_before=before + step)


def diagnosis_of(*findings, rules=("REF003",)):
    made = Diagnosis(select_rules(rules))
    for each in findings:
        made.add_recorded(each)
    return made


@pytest.fixture
def diagnosis():
    """Suspected at step 3, seen again at 5, proven at 9 and 10."""
    results = [finding(Verdict.SUSPECT, 2), finding(Verdict.SUSPECT, 4)]
    results += [finding(Verdict.PROVEN, 8), finding(Verdict.PROVEN, 9), finding(Verdict.PROVEN, 9)]
    return diagnosis_of(*results)


def test_what_an_earlier_stage_shows_comes_first_whatever_rules_are_asked_first():
    late, early = finding(Verdict.PROVEN, 0, "RAT002", before=3), finding(Verdict.PROVEN, 2, "SMP006", "sft")
    diagnosis = diagnosis_of(late, early, rules=("RAT002", "SMP006"))
    every = (each for found in diagnosis.findings.values() for each in found)
    assert [each.shown.code for each in findings_by_rule(every)] == ["SMP006", "RAT002"]


def test_taint_begins_where_a_fault_was_first_suspected_not_where_it_was_proven(diagnosis):
    (sentence,) = tainted_checkpoints(diagnosis, RECIPE)
    assert sentence.startswith("REF003: discard checkpoints of grpo after 2 steps, and all later")
    assert any("from grpo 3 on" in text for text, _ in report_lines(diagnosis, "RUN"))


def test_what_may_be_health_begins_no_taint():
    results = [finding(Verdict.CANNOT_TELL, 0), finding(Verdict.PROVEN, 8)]
    (sentence,) = tainted_checkpoints(diagnosis_of(*results), RECIPE)
    assert "after 8 steps" in sentence


def test_what_is_suppressed_taints_nothing(diagnosis):
    diagnosis.suppressed = {"REF003": "we sync it by hand"}
    assert tainted_checkpoints(diagnosis, RECIPE) == []


def test_a_finding_is_reported_once_in_every_form(diagnosis):
    texts = [text for text, _ in report_lines(diagnosis, "RUN")]
    heads = [text for text in texts if "REF003 a-name" in text]
    assert heads == ["PROVEN REF003 a-name  at grpo 9, first SUSPECT at grpo 3, in 4 steps"]
    (reported,) = report_facts(diagnosis)["findings"]
    assert (reported["step"], reported["first_stage"], reported["first_step"], reported["steps"]) == (
        9,
        "grpo",
        3,
        4,
    )
    (result,) = json.loads(json.dumps(sarif(diagnosis, "x")))["runs"][0]["results"]
    assert (result["level"], result["occurrenceCount"]) == ("error", 4)
    (case,) = ElementTree.fromstring(junit(diagnosis, "x"))
    assert case.find("failure").get("message").endswith("(grpo 9, first SUSPECT at grpo 3, in 4 steps)")


def test_a_finding_of_one_step_says_no_more_than_its_place():
    (each,) = findings_by_rule([finding(Verdict.PROVEN, 3)])
    assert (each.repeats, each.steps) == ("", 1)


def test_a_report_counts_one_as_one():
    one = diagnosis_of(finding(Verdict.PROVEN, 3), rules=["OPT007", "REF003"])
    one.add(RULES["OPT018"].example())
    assert "1 rule found something, 0 are clean, 1 was not checked" in [
        text for text, _ in report_lines(one, "RUN")
    ]
    one.suppressed = {"REF003": "by hand"}
    assert "suppressed REF003 (1 step): by hand" in [text for text, _ in report_lines(one, "RUN")]


def test_what_a_rule_cannot_tell_is_counted():
    open_ = diagnosis_of(finding(Verdict.CANNOT_TELL, 3), rules=["REF"])
    assert "0 rules found something, 1 cannot tell, 0 are clean, 0 were not checked" in [
        text for text, _ in report_lines(open_, "RUN")
    ]


def test_while_a_run_goes_on_a_rule_is_reported_again_only_where_its_verdict_is_another(monkeypatch):
    live = LiveDoctor.__new__(LiveDoctor)
    live.reported, live.history, live.sampling_params, live.bos_id, live.tools, live.rewards = (
        set(),
        History(),
        None,
        None,
        (),
        {},
    )
    monkeypatch.setattr("truing.doctor.live_doctor.setup_of", lambda *_: None)
    entries = []
    for step, verdict in enumerate([Verdict.SUSPECT, Verdict.SUSPECT, Verdict.PROVEN, Verdict.PROVEN]):
        found = finding(verdict, step)
        live.diagnosis = diagnosis_of(found)
        live.diagnosis.add = lambda _, found=found: [found]
        table = StepTable(stage="grpo", step=step, metrics={}, samples=[], starts=[0], streams={})
        entries += live.diagnose(table, None)[1]
    assert [(each.claim.verdict, each.step) for each in entries] == [
        (Verdict.SUSPECT, 0),
        (Verdict.PROVEN, 2),
    ]
    assert live.diagnosis.findings == {}, "a long run has no memory for the findings of each step"


def test_what_was_not_checked_is_a_line_for_each_missing_input_with_every_rule_once():
    lacking = {"REF001": ["a"], "REF002": ["b", "c"], "REF003": ["c"], "REF004": ["b", "c", "a"]}
    results = [RuleResult(code, Verdict.NOT_CHECKED, missing=tuple(each)) for code, each in lacking.items()]
    result = SimpleNamespace(results=lambda: results, rule_errors={}, suppressed={}, coverage=Coverage())
    texts = [text for text, _ in report_lines(result, "RUN", verbose=True) if "not checked: " in text]
    assert texts == ["not checked: needs c: REF002, REF003, REF004", "not checked: needs a: REF001"]
    assert "some of these lack more inputs; --json lists all" in [
        x for x, _ in report_lines(result, "RUN", verbose=True)
    ]
    assert report_facts(result)["not_checked"] == lacking
