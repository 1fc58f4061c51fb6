"""What was never looked at, in one line."""

from dataclasses import replace

from truing.doctor.coverage import Coverage
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.evidence import changed_step
from truing.doctor.rules import RULES
from truing.types.facts import Facts
from truing.types.step_table import StepNumbers

OPT007, OPT018, TOK001, LEN002 = (RULES[code] for code in ("OPT007", "OPT018", "TOK001", "LEN002"))


def judged(*steps):
    diagnosis = Diagnosis([OPT007, OPT018, LEN002])
    for step in steps:
        diagnosis.add(step)
    return diagnosis.coverage


def test_a_rule_that_lacked_its_input_in_every_step_of_a_stage_is_listed():
    step = OPT018.example()
    assert judged(step, step).text() == "not audited: grpo: a digest of the frozen weights (OPT007)"


def test_one_checked_step_is_enough_in_its_own_stage_alone():
    without, with_both = OPT018.example(), changed_step(OPT018.example(), facts=OPT007.example().facts)
    assert judged(without, with_both, without).text() == ""
    other = replace(without, stage="ppo")
    assert judged(with_both, other).never_checked() == {"ppo": {"OPT007": ["a digest of the frozen weights"]}}


def test_a_trend_needs_steps_and_no_audit():
    coverage = judged(changed_step(OPT018.example(), facts=OPT007.example().facts))
    assert "LEN002" not in coverage.text()


def test_rules_that_lack_one_input_are_listed_together():
    coverage = Coverage()
    for code in ("SMP003", "SMP004"):
        coverage.add("grpo", code, ["a plain forward"])
    coverage.add("sft", "OPT007", ["a digest"])
    assert coverage.text() == "not audited: grpo: a plain forward (SMP003, SMP004); sft: a digest (OPT007)"


def test_steps_of_the_record_count_after_a_resume():
    coverage, rules = Coverage(), [OPT007, TOK001]
    for rule in rules:
        coverage.add("grpo", rule.code, ["an input"])
    facts: Facts = {"frozen": {"digest": "a", "declared": "a"}}
    coverage.add_recorded(StepNumbers("grpo", 0, {"alignment": 1.0}), rules)
    assert [*coverage.never_checked()["grpo"]] == ["OPT007"]
    coverage.add_recorded(StepNumbers("grpo", 1, {}, facts), rules)
    assert coverage.text() == ""
