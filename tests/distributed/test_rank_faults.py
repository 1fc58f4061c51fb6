"""Faults that are planted in the ranks of a run are found, and their causes named first."""

from dataclasses import replace

import pytest

from dev.faults.detection_matrix import passed
from dev.faults.healthy_runs import healthy_runs
from dev.faults.planted import FAULTS
from dev.faults.run_fault import run_in_ranks
from dev.faults.unplanted_runs import unplanted_runs
from truing.doctor.diagnosis import ranked
from truing.doctor.postmortem import diagnose_run

pytestmark = pytest.mark.integration

IN_RANKS = {name: fault for name, fault in FAULTS.items() if fault.ranks > 1}
HEALTHY = {name: run for name, run in {**healthy_runs(), **unplanted_runs()}.items() if run.ranks > 1}
QUICK = ("rank-own-denominators", "rank-gradients-averaged", "rank-rows-twice", "rank-other-data")
ONE_STEP = {"stages": ["sft"], "sft.steps": 1}

CAUSES = {
    "rank-own-denominators": "each rank divides its loss by its own tokens, not by those of all ranks",
    "rank-gradients-averaged": "all gradients were averaged over 2 ranks, not summed",
    "rank-rows-twice": "counted more than once in one optimizer step",
}


def outcomes(faults, folder):
    """Run faults in the processes of one start; a start costs more than a short run."""
    return {each.fault.name: each for each in run_in_ranks(faults, folder)}


def said(outcome):
    return outcome.error, [
        (each.code, str(each.claim.verdict), each.claim.what) for each in ranked(outcome.fired)
    ]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    faults = [replace(FAULTS[name], changes={**FAULTS[name].changes, **ONE_STEP}) for name in QUICK]
    return outcomes(faults, tmp_path_factory.mktemp("quick"))


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_in_the_ranks_is_found_and_its_cause_named_first(name, quick):
    assert passed(quick[name]), said(quick[name])


@pytest.mark.parametrize("name", CAUSES)
def test_the_first_finding_says_what_is_wrong(name, quick):
    assert CAUSES[name] in ranked(quick[name].fired)[0].claim.what


@pytest.mark.slow
def test_every_fault_in_the_ranks_is_found_and_its_cause_named_first(tmp_path):
    wrong = {
        name: said(each)
        for name, each in outcomes(list(IN_RANKS.values()), tmp_path).items()
        if not passed(each)
    }
    assert wrong == {}


@pytest.mark.slow
def test_no_healthy_run_of_several_ranks_has_a_finding(tmp_path):
    for name, each in outcomes(list(HEALTHY.values()), tmp_path).items():
        assert (said(each), each.broken) == (("", []), ()), name


def test_healthy_runs_of_ranks_include_each_recipe_of_a_fault_and_a_resumption():
    assert {fault.ranks for fault in HEALTHY.values()} == {2}
    assert any(run.resumed_after for run in HEALTHY.values())
    assert {"ranks-0", "ranks-ppo-0", "ranks-adapter-0", "ranks-replicated-0"} <= HEALTHY.keys()


DIVERGED = {
    "rank-moments-not-restored": "optimizer moments before the step",
    "rank-schedule-restarted": "learning rates",
    "rank-weights-not-restored": "policy weights before the step",
}
"""What differs first if each rank holds all weights; sharded, the weights stay equal."""

NOT_IN_REPLICAS = {"rank-clips-by-own-norm", "rank-reference-shard-stale"}
"""A replica's own norm is that of all, and it has no shard."""


@pytest.mark.slow
def test_faults_are_found_where_each_rank_holds_all_weights(tmp_path):
    sharded = [
        fault
        for name, fault in IN_RANKS.items()
        if "trainer.replicate" not in fault.changes and name not in NOT_IN_REPLICAS and "vllm" not in name
    ]
    faults = [replace(each, changes={**each.changes, "trainer.replicate": 2}) for each in sharded]
    wrong = {}
    for name, each in outcomes(faults, tmp_path).items():
        if name in DIVERGED:
            findings = diagnose_run(tmp_path / name / "run", select=["DST001"]).findings["DST001"]
            found = f"other {DIVERGED[name]} than" in ranked(findings)[0].claim.what
        else:
            found = passed(each)
        if not found:
            wrong[name] = said(each)
    assert wrong == {}
