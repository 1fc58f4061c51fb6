"""What to do next: by number, nothing before what it waits for, and why a step cannot decide."""

import json
import math
from dataclasses import replace

import pytest
from labs import HEADER, declared, lab_in, run_of, with_runs

from truing.errors import LabError
from truing.lab.report.text import step_lines
from truing.lab.run.design import BASELINE, arms_of, missing_jobs
from truing.lab.run.plan import missing_runs, plan
from truing.lab.store.ledger import CheckResult

CHECK = '[check]\nrules = ["LEN"]\nsettles = true\n'
FINE = HEADER.replace("smallest_effect = 0.5", "smallest_effect = 5.0").replace("below = 0.5", "below = 5.0")
"""Decides, whatever the noise is guessed to be."""
BLIND = HEADER.replace("smallest_effect = 0.5", "smallest_effect = 0.001")


def header(base=FINE, **facts):
    lines = [line for line in base.splitlines() if not line.startswith(tuple(f"{name} =" for name in facts))]
    return "\n".join([*(f"{name} = {value}" for name, value in facts.items()), *lines])


def other(base, rate):
    return base.replace("2e-3", f"{rate}e-3")


def names(steps):
    return [(step.hypothesis.id, step.kind) for step in steps]


def test_a_lab_without_hypotheses_has_nothing_to_do(tmp_path):
    assert plan(lab_in(tmp_path, {})) == []


def test_the_order_is_that_of_numbers(tmp_path):
    """Also beyond 99, where names sort otherwise."""
    headers = {name: other(header(), i + 2) for i, name in enumerate(("h100", "h11", "h02"))}
    steps = plan(lab_in(tmp_path, headers, "family = 100"))
    assert names(steps) == [(name, "experiment") for name in ("h02", "h11", "h100")]


def test_a_prerequisite_comes_first(tmp_path):
    headers = {
        "h01": header(prerequisites='["h03"]'),
        "h02": other(header(), 3),
        "h03": other(header(), 4),
    }
    steps = plan(lab_in(tmp_path, headers, "family = 3"))
    assert [step.hypothesis.id for step in steps] == ["h02", "h03", "h01"]
    assert [step.waits_for for step in steps] == [(), (), ("h03",)]
    lines = [text for text, _ in step_lines(steps)]
    assert "2. h03 Some: experiment (at most 20 runs)" in lines
    assert "3. h01 Some: experiment (at most 20 runs, after h03)" in lines


def test_minutes_are_those_of_runs_on_so_many_places(tmp_path):
    """Unknown before the first run, and then their mean."""
    lab = lab_in(tmp_path, {"h01": header()})
    (step,) = plan(lab)
    assert (step.runs, math.isnan(step.minutes)) == (20, True)
    hypothesis = lab.hypothesis("h01")
    lab = declared(lab, hypothesis)
    for seed, seconds in enumerate((60.0, 180.0, None)):
        lab = lab.with_entry(run_of(lab, hypothesis, BASELINE, seed, 0.0, seconds=seconds))
    (step,) = plan(lab, jobs=2)
    assert (step.runs, step.minutes) == (17, 17 * 2 / 2)
    assert next(text for text, _ in step_lines([step])).endswith("(at most 17 runs, 17 min)")
    assert next(text for text, _ in step_lines([step], cost=False)).endswith(": experiment")


def test_nothing_waits_for_what_is_settled(tmp_path):
    headers = {"h01": header(prerequisites='["h02"]'), "h02": other(header(), 3)}
    lab = lab_in(tmp_path, headers, "family = 2")
    second = lab.hypothesis("h02")
    lab = with_runs(declared(lab, second), second, {"changed": [9.0] * 8})
    (step,) = plan(lab)
    assert (step.hypothesis.id, step.waits_for) == ("h01", ())


def test_a_prerequisite_with_a_prior_is_waited_for(tmp_path):
    prior = '\n[prior]\nverdict = "VALIDATED"\nnote = "n"\nsource = "s"\n'
    headers = {"h01": header(prerequisites='["h02"]'), "h02": other(header() + prior, 3)}
    steps = plan(lab_in(tmp_path, headers, "family = 2"))
    assert [step.hypothesis.id for step in steps] == ["h02", "h01"]


def test_prerequisites_in_a_circle_are_refused(tmp_path):
    headers = {
        "h01": header(prerequisites='["h02"]'),
        "h02": other(header(prerequisites='["h01"]'), 3),
    }
    with pytest.raises(LabError, match="prerequisites wait for each other"):
        lab_in(tmp_path, headers, "family = 2")


def test_an_arm_that_is_no_recipe_stops_no_other(tmp_path):
    bad = header().replace("grpo.learning_rate=2e-3", "grpo.lr=1")
    lab = lab_in(tmp_path, {"h01": bad, "h02": other(header(), 3)}, "family = 2")
    steps = plan(lab)
    assert [bool(step.refused) for step in steps] == [True, False]
    assert "arm changed of h01 is not a recipe" in steps[0].refused
    facts = json.loads(json.dumps(steps[0].facts(), allow_nan=False))
    assert (facts["minutes"], facts["runs"]) == (None, None)


def test_what_cannot_decide_says_why_in_its_place(tmp_path):
    headers = {"h01": BLIND, "h02": other(header(), 3), "h03": other(header(seeds=3), 4)}
    steps = plan(lab_in(tmp_path, headers, "family = 3"))
    assert names(steps) == [(name, "experiment") for name in headers]
    assert [bool(step.refused and step.would) for step in steps] == [True, False, True]
    assert "3 pairs prove nothing" in steps[2].refused


def test_a_check_before_its_experiment(tmp_path):
    narrow = header(FINE + CHECK.replace("settles = true", "settles = false"))
    lab = lab_in(tmp_path, {"h01": narrow})
    steps = plan(lab)
    assert names(steps) == [("h01", "check"), ("h01", "experiment")]
    assert math.isnan(steps[0].minutes)
    lab = lab.with_entry(CheckResult("h09", "r", "c", {}, {}, 30.0))
    assert plan(lab)[0].minutes == 0.5


def test_what_a_check_may_settle_is_not_planned_beyond_it(tmp_path):
    lab = lab_in(tmp_path, {"h01": header(FINE + CHECK)})
    assert names(plan(lab)) == [("h01", "check")]
    open_ = lab.with_entry(CheckResult("h01", "r", "c", {"LEN001": ["SUSPECT", "x"]}, {}, 30.0))
    assert names(plan(open_)) == [("h01", "experiment")]
    clean = lab.with_entry(CheckResult("h01", "r", "c", {"LEN001": ["CLEAN", ""]}, {}, 30.0))
    assert plan(clean) == []


def test_what_waits_for_a_check_waits_for_the_whole_hypothesis(tmp_path):
    narrow = FINE + CHECK.replace("settles = true", "settles = false")
    headers = {"h01": other(header(prerequisites='["h02"]'), 3), "h02": narrow}
    steps = plan(lab_in(tmp_path, headers, "family = 2"))
    assert names(steps) == [("h02", "check"), ("h02", "experiment"), ("h01", "experiment")]


# Runs that lack.


def test_runs_that_lack(tmp_path):
    lab = lab_in(tmp_path, {"h01": header()})
    hypothesis = lab.hypothesis("h01")
    assert len(missing_runs(lab, hypothesis, None)) == 20
    lab = lab.with_entry(run_of(lab, hypothesis, BASELINE, 0, 0.0))
    assert len(missing_runs(lab, hypothesis, None)) == 19
    lab = lab.with_entry(run_of(lab, hypothesis, BASELINE, 0, 0.0))
    assert len(missing_runs(lab, hypothesis, None)) == 19
    lab = lab.with_entry(run_of(lab, hypothesis, "changed", 0, 0.0, outcome="crashed"))
    assert len(missing_runs(lab, hypothesis, None)) == 19
    lab = lab.with_entry(run_of(lab, hypothesis, "changed", 10, 0.0))
    assert len(missing_runs(lab, hypothesis, None)) == 19


def test_runs_of_another_hypothesis_are_reused(tmp_path):
    lab = lab_in(tmp_path, {"h01": header(), "h02": other(header(), 3), "h03": header()}, "family = 3")
    first = lab.hypothesis("h01")
    lab = with_runs(declared(lab, first), first, {"changed": [0.0] * 4})
    assert [len(missing_runs(lab, lab.hypothesis(name), None)) for name in ("h01", "h02", "h03")] == [
        12,
        16,
        12,
    ]


def test_runs_of_another_version_of_the_code_are_no_half_of_a_pair(tmp_path):
    """Baselines of older code run again for the remaining arms: 20 runs, and not 10."""
    lab = lab_in(tmp_path, {"h01": header()})
    hypothesis = lab.hypothesis("h01")
    for seed in range(10):
        older = replace(run_of(lab, hypothesis, BASELINE, seed, 0.0), code="older", key=f"older-{seed}")
        lab = lab.with_entry(older)
    arms = arms_of(lab, hypothesis, None)
    assert len(missing_jobs(lab, arms[BASELINE], [arms["changed"]], range(10))) == 20
    assert len(missing_runs(lab, hypothesis, None)) == 20


# Facts, and what the lab sees.


def test_facts_are_json(tmp_path):
    headers = {"h01": header(BLIND), "h02": other(header(seeds=3), 3), "h03": other(header(FINE + CHECK), 4)}
    for step in plan(lab_in(tmp_path, headers, "family = 3")):
        facts = json.loads(json.dumps(step.facts(), allow_nan=False))
        assert facts["hypothesis"] == step.hypothesis.id
        assert facts["kind"] == step.kind
        assert facts["minutes"] is None
        assert ("noise" in facts) == (step.kind == "experiment")
