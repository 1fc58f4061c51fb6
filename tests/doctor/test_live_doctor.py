"""The doctor in a run: it stops what is proven wrong, tells of the rest, and changes nothing."""

import json
from dataclasses import replace

import pytest
from runs import HOT, Interrupt, assert_same_run, crash_at, not_finite_at

import truing
from dev.faults.planted import FAULTS
from truing.doctor.live_doctor import finding_event
from truing.doctor.postmortem import diagnose_run
from truing.doctor.rules import RULES
from truing.doctor.verdict import Claim, Finding, Verdict
from truing.errors import ProvenError, RecipeError
from truing.record import RunReader
from truing.trainer.preflight import random_reward

pytestmark = pytest.mark.integration


def events(run, kind):
    return [event.payload for event in RunReader(run).events() if event.kind == kind]


def test_a_proven_fault_ends_the_run_and_no_checkpoint_has_it(mini, tmp_path):
    out = tmp_path / "run"
    with FAULTS["mask-shifted"].plant(), pytest.raises(ProvenError) as error:
        truing.train(mini(), rewards=[random_reward], out=out, on_event=lambda *_: None)
    assert "MSK003" in error.value.what
    assert "truing explain MSK003" in error.value.remedy
    assert [(row.stage, row.step) for row in RunReader(out).steps()][-1] == ("grpo", 0)
    assert not (out / "checkpoints" / "grpo-000001").exists()
    (finding,) = (each for each in events(out, "finding") if each.get("code") == "MSK003")
    assert (finding["verdict"], finding["stage"], finding["step"]) == ("PROVEN", "grpo", 0)
    assert finding["remedy"] == RULES["MSK003"].section("Fix") != ""
    assert finding["log10_odds"] is None  # a proof has no odds


def test_an_event_has_the_remedy_of_its_claim_and_its_odds():
    claim = Claim(Verdict.EVIDENCE, "draws are hot", remedy="cool them", log10_odds=6.5)
    event = finding_event(Finding("SMP007", "not-drawn-as-declared", "grpo", 3, claim))
    assert (event["remedy"], event["log10_odds"]) == ("cool them", 6.5)
    event = finding_event(Finding("SMP007", "not-drawn-as-declared", "grpo", 3, replace(claim, remedy="")))
    assert event["remedy"] == RULES["SMP007"].section("Fix") != ""


def test_a_rule_that_fails_itself_is_reported_once_and_ends_nothing(mini, tmp_path, monkeypatch):
    def fails(step):
        raise KeyError("alone")

    monkeypatch.setitem(RULES, "MSK003", replace(RULES["MSK003"], judge=fails))
    run = truing.train(mini(), rewards=[random_reward], out=tmp_path / "run", on_event=lambda *_: None).run
    (incident,) = (each for each in events(run, "incident") if each["what"] == "rule")
    assert "MSK003 was not checked: KeyError: 'alone' (grpo 1)" in incident["text"]
    (result,) = (each for each in diagnose_run(run).results() if each.code == "MSK003")
    assert result.verdict is Verdict.NOT_CHECKED
    assert "a fault of Truing" in result.missing[0]


def test_a_suppressed_fault_is_on_record_and_the_run_goes_on(mini, tmp_path):
    table = mini(doctor={"suppress": {"MSK003": "a trial", "OPT006": "the same"}})
    with FAULTS["mask-shifted"].plant():
        run = truing.train(table, rewards=[random_reward], out=tmp_path / "run", on_event=lambda *_: None).run
    assert [each["code"] for each in events(run, "finding") if each.get("verdict") == "PROVEN"] == []


def test_where_it_may_not_stop_it_reports(mini, tmp_path):
    with FAULTS["mask-shifted"].plant():
        run = truing.train(
            mini(doctor={"stop": False}),
            rewards=[random_reward],
            out=tmp_path / "run",
            on_event=lambda *_: None,
        ).run
    codes = [each["code"] for each in events(run, "finding") if each.get("verdict") == "PROVEN"]
    assert codes == ["MSK003", "OPT006"]  # once each, though each step has them


def test_a_code_that_is_no_rules_is_refused_before_anything_is_trained(mini, tmp_path):
    with pytest.raises(RecipeError, match="no such rule"):
        truing.train(mini(doctor={"suppress": {"ABC123": "why not"}}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "in_grpo"),
    [({}, [False, True, False]), ({"lora": {"rank": 4}, "kl": {"coef": 0.05}}, [True, False, False])],
    ids=["alone", "beside a reference"],
)
def test_looking_changes_nothing(mini, tmp_path, changes, in_grpo):
    runs = [
        truing.train(
            mini(doctor={"budget": budget}, **changes), out=tmp_path / str(budget), on_event=lambda *_: None
        ).run
        for budget in (0.0, 1.0)
    ]
    assert_same_run(*runs, audits=False)
    looked = [["plain" in row.facts for row in RunReader(run).steps()] for run in runs]
    assert looked == [[False, True, False, *in_grpo], [True] * 6]


def test_a_resumed_run_may_be_watched_otherwise(mini, tmp_path):
    out, table = tmp_path / "run", mini(checkpoint_every=1)
    with pytest.raises(Interrupt):
        truing.train(table, out=out, on_event=crash_at("grpo", 1))
    watched = mini(checkpoint_every=1, doctor={"suppress": {"LEN003": "answers are short on purpose"}})
    truing.train(watched, out=out, resume=True, on_event=lambda *_: None)
    assert events(out, "resumed")[0]["suppress"] == {"LEN003": "answers are short on purpose"}


def test_the_first_steps_are_reported_in_words(trained_run):
    run = trained_run("run").run
    result = events(run, "boundary")
    assert [(each["stage"], each["step"]) for each in result] == [
        ("sft", 0),
        ("sft", 1),
        ("grpo", 0),
        ("grpo", 1),
    ]
    lines = json.dumps(result[0]["lines"])
    for part in (
        "prompt tokens, ending in",
        "the first answer, ",
        "trained: ",
        "in the first answer; finish reason demo",
        "entropy",
    ):
        assert part in lines


def test_facts_of_a_step_hold_what_rules_read(trained_run):
    run = trained_run("run", lora={"rank": 4}, kl={"coef": 0.05}).run
    first, *others = (row for row in RunReader(run).steps() if row.stage == "grpo")
    assert {"weights", "adamw", "null", "plain", "sync", "reference"} <= first.facts.keys()
    assert any("gradient" in row.facts for row in others)
    assert first.facts["plain"]["trainer"] < 1e-4
    assert first.facts["plain"]["sampler"] < 1e-4
    assert first.facts["reference"]["digest"] == first.facts["reference"]["declared"]
    assert first.facts["sync"]["largest"] <= 8 * first.facts["sync"]["eps"] * first.facts["sync"]["scale"]


def test_a_run_that_was_rolled_back_is_no_fault(mini, tmp_path, monkeypatch):
    not_finite_at(monkeypatch)
    run = truing.train(mini(**HOT), out=tmp_path / "run", on_event=lambda *_: None).run
    assert events(run, "rollback")
    strong = (Verdict.PROVEN, Verdict.EVIDENCE)
    results = [each for each in diagnose_run(run).results() if each.verdict in strong]
    assert [each.code for each in results] == []
    assert [each for each in events(run, "finding") if each.get("verdict") in strong] == []


def test_a_stage_whose_evaluation_fell_ends_with_a_finding(mini, tmp_path):
    kinds, out = [], tmp_path / "run"

    def before_training(rollout, task):
        return float("step" not in kinds)

    table = mini(eval={"tasks": 8, "samples": 1}, stages=["grpo"])
    truing.train(table, rewards=[before_training], out=out, on_event=lambda kind, _: kinds.append(kind))
    (found,) = (each for each in events(out, "finding") if each.get("code") == "RWD012")
    assert "1.000 → 0.000" in found["got"]
    results = {each.code: each.verdict for each in diagnose_run(out).results()}
    assert results["RWD012"] is Verdict.SUSPECT
