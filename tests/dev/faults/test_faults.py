"""Planted faults are caught, and their causes named first; healthy runs are left alone."""

import json
import re
from dataclasses import replace

import pytest
from command import truing

from dev.faults.detection_matrix import QUICK, false_alarms, page, passed, run_all, runs_by_name
from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import CORPUS, healthy_runs, recipes
from dev.faults.planted import FAULTS
from dev.faults.run_fault import OUTCOME_FILE, RUN_DIR, FaultOutcome, run_fault
from truing.doctor.verdict import Verdict
from truing.errors import RecipeError, TruingError
from truing.ops import kl
from truing.record import RunReader

SECOND_STEP = ("kl-sign", "weight-noise")
"""Faults of the sample that the first step of a policy does not show."""


@pytest.fixture(scope="module")
def quick():
    """Outcomes after a step or two of each stage; the slow tests train every run in full."""
    everything = {**FAULTS, **healthy_runs()}
    outcomes = {}
    for name in QUICK:
        run = everything[name]
        steps = 2 if run.healthy or name in SECOND_STEP else 1
        changes = {**run.changes, "sft.steps": 1, "grpo.steps": steps}
        outcomes[name] = run_fault(replace(run, changes=changes))
    return outcomes


@pytest.mark.integration
@pytest.mark.parametrize("name", QUICK)
def test_the_sample_is_as_it_should_be(quick, name):
    assert passed(quick[name]), [(each.code, each.claim.what) for each in quick[name].fired]


@pytest.mark.integration
def test_the_page_reports_what_was_caught(quick):
    result = page(list(quick.values()), "truing faults --quick")
    assert "13 planted faults: the doctor catches 13; its first finding names the cause of 13." in result
    assert "3 healthy runs: 0 with a PROVEN or EVIDENCE" in result
    for name in QUICK:
        assert f"| {name}" in result


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_can_be_planted(name):
    with FAULTS[name].plant():  # KeyError: what it replaces has moved
        pass


# those of several ranks: tests/distributed/test_rank_faults.py
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.ranks == 1])
def test_every_planted_fault_is_caught_and_its_cause_named_first(name):
    result = run_fault(FAULTS[name])
    assert passed(result), [(each.code, each.claim.what) for each in result.fired]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, run in healthy_runs().items() if run.ranks == 1])
def test_no_healthy_run_is_proven_to_be_ill(name):
    result = run_fault(healthy_runs()[name])
    assert (result.error, false_alarms(result)) == ("", [])


@pytest.mark.integration
def test_a_missed_fault_and_a_false_alarm_do_not_pass(quick):
    harmless = Fault("harmless", (), "nothing", healthy_runs()["on-policy-0"].plant, ("MSK001",))
    assert not passed(run_fault(harmless))
    ill = quick["mask-shifted"]
    assert "MSK003" in false_alarms(ill)
    assert not passed(type(ill)(Fault("x", (), "", harmless.plant, (), healthy=True), ill.fired, ""))


@pytest.mark.integration
def test_a_refusal_that_names_another_cause_does_not_pass(quick):
    outcome = quick["vllm-own-temperature"]
    assert outcome.caught
    other = replace(outcome, fault=replace(outcome.fault, refusal="another cause"))
    assert not passed(other)


def test_a_refusal_that_nobody_expected_does_not_pass():
    """Such a fault was counted as caught whatever the error was, as that its folder exists."""
    fault = Fault("undeclared", (), "", healthy_runs()["on-policy-0"].plant, ("MSK001",))
    assert not passed(FaultOutcome(fault, (), "RecordError: the folder exists"))
    assert all(fault.expected or fault.refusal for fault in FAULTS.values())


@pytest.mark.integration
def test_an_error_in_one_run_ends_no_other(tmp_path, monkeypatch):
    """Of one process, and of ranks that share their processes."""
    (tmp_path / "kl-sign").write_text("no folder")

    def lost(faults, keep):
        raise TruingError("a run in ranks failed", got="exit code 1")

    monkeypatch.setattr("dev.faults.detection_matrix.run_in_ranks", lost)
    found = list(run_all(["kl-sign", "rank-other-seed"], tmp_path))
    assert [outcome.fault.name for outcome in found] == ["kl-sign", "rank-other-seed"]
    assert "FileExistsError" in found[0].error
    assert found[1].error == "a run in ranks failed: exit code 1"
    assert not any(passed(outcome) for outcome in found)


def test_what_was_replaced_is_put_back():
    real = kl.kl_k1
    with patched("truing.ops.kl:kl_k1", lambda _: None):
        assert kl.kl_k1 is None
    assert kl.kl_k1 is real


def test_every_fault_expects_rules_that_there_are():
    from truing.doctor.rules import RULES

    assert {code for fault in FAULTS.values() for code in fault.expected} <= RULES.keys()
    assert all(fault.what for fault in FAULTS.values())


def test_the_corpus_is_at_least_fifty_runs_and_lies_in_recipes(request):
    assert len(healthy_runs()) >= 50
    folder = request.config.rootpath / "recipes" / "healthy"
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert written == recipes(), "python -m dev.faults.healthy_runs recipes/healthy writes them anew"
    assert len(recipes()) == len(CORPUS)


@pytest.mark.slow
def test_a_run_by_name_as_json(tmp_path):
    outcome = truing("faults", "stop-masked", "--json", "--steps", "1", "--keep", str(tmp_path))
    assert outcome.code == 0
    facts = json.loads(outcome.out)
    assert {"fault", "healthy", "expected", "fired", "caught", "cause_rank"} <= facts.keys()
    assert facts["caught"]
    assert re.fullmatch(r"MSK\d+", facts["fired"][0]["code"])
    assert facts["fired"][0]["verdict"] == Verdict.PROVEN
    assert (
        json.loads((tmp_path / "stop-masked" / OUTCOME_FILE).read_text(encoding="utf-8")).items()
        <= facts.items()
    )
    assert [(row.stage, row.step) for row in RunReader(tmp_path / "stop-masked" / RUN_DIR).steps()][-1] == (
        "grpo",
        0,
    )


def test_an_unknown_name_is_refused():
    with pytest.raises(RecipeError, match="no such fault"):
        runs_by_name(["nonesuch"])


def test_the_recipe_of_a_fault_without_it_is_run_where_it_is_named():
    assert runs_by_name(["without-kl-sign"]) == ["without-kl-sign"]
    assert "without-kl-sign" not in runs_by_name([])
