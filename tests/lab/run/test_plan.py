"""What to do next: most bits per minute first, nothing before what it waits for, what cannot decide last."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from labs import HEADER, declared, lab_in, run_of, with_runs

from truing.errors import LabError
from truing.lab.run.design import BASELINE, arms_of, missing_jobs
from truing.lab.run.plan import (
    CHECK_MINUTES,
    NARROWING_POWER,
    check_minutes,
    detectable_effects,
    missing_runs,
    plan,
    run_minutes,
)
from truing.lab.stats.power import information
from truing.lab.store.ledger import CheckResult, Promotion

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


def test_the_likeliest_first(tmp_path):
    chances = {"h01": 0.1, "h02": 0.5, "h03": 0.3}
    headers = {
        name: other(header(probability=chance), i + 2) for i, (name, chance) in enumerate(chances.items())
    }
    steps = plan(lab_in(tmp_path, headers, "family = 3"))
    assert names(steps) == [("h02", "experiment"), ("h03", "experiment"), ("h01", "experiment")]
    assert all(one.score >= two.score for one, two in pairwise(steps))
    assert not any(step.refused for step in steps)


def test_the_cheapest_first(tmp_path):
    headers = {"h01": header(), "h02": other(header(seeds=9), 3)}
    steps = plan(lab_in(tmp_path, headers, "family = 2"))
    assert [step.runs for step in steps] == [18, 20]
    assert names(steps)[0] == ("h02", "experiment")


def test_a_score_by_hand(tmp_path):
    """Minutes are unknown at first, so the score is per run; then per minute."""
    lab = lab_in(tmp_path, {"h01": header(probability=0.4)})
    (step,) = plan(lab)
    assert math.isnan(step.minutes)
    assert step.score == pytest.approx(0.4 * step.information / 20)
    assert step.information == pytest.approx(information(0.4, 1.0, 0.025))
    lab = with_runs(declared(lab, lab.hypothesis("h01")), lab.hypothesis("h01"), {"changed": [0.1, 0.2]})
    (step,) = plan(lab, jobs=2)
    assert step.runs == 16
    assert step.minutes == 16 * 0.5 / 2
    assert step.score == pytest.approx(0.4 * step.information / 4)


def test_a_prerequisite_comes_first_however_dull(tmp_path):
    headers = {
        "h01": header(probability=0.5, prerequisites='["h02"]'),
        "h02": other(header(probability=0.01), 3),
        "h03": other(header(probability=0.4), 4),
    }
    steps = plan(lab_in(tmp_path, headers, "family = 3"))
    assert [step.hypothesis.id for step in steps] == ["h03", "h02", "h01"]
    assert [step.waits_for for step in steps] == [(), (), ("h02",)]


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
    assert [step.hypothesis.id for step in steps] == ["h02", "h01"]
    assert "arm changed of h01 is no recipe" in steps[1].refused
    assert json.loads(json.dumps(steps[1].facts(), allow_nan=False))["minutes"] is None


def test_what_cannot_decide_comes_last_and_says_why(tmp_path):
    headers = {
        "h01": header(BLIND, probability=0.5),
        "h02": other(header(probability=0.01), 3),
        "h03": other(header(seeds=3, probability=0.5), 4),
    }
    steps = plan(lab_in(tmp_path, headers, "family = 3"))
    assert steps[0].hypothesis.id == "h02"
    assert {step.hypothesis.id for step in steps[1:]} == {"h01", "h03"}
    assert all(step.refused and step.would for step in steps[1:])
    assert "3 pairs prove nothing" in next(s.refused for s in steps if s.hypothesis.id == "h03")


def test_a_check_before_its_experiment(tmp_path):
    narrow = header(FINE + CHECK.replace("settles = true", "settles = false"))
    steps = plan(lab_in(tmp_path, {"h01": narrow}))
    assert names(steps) == [("h01", "check"), ("h01", "experiment")]
    assert steps[0].information == pytest.approx(information(0.3, NARROWING_POWER, 0.0))
    assert steps[0].minutes == CHECK_MINUTES


def test_what_a_check_may_settle_is_not_planned_beyond_it(tmp_path):
    lab = lab_in(tmp_path, {"h01": header(FINE + CHECK)})
    (step,) = plan(lab)
    assert names([step]) == [("h01", "check")]
    entropy = -(0.3 * math.log2(0.3) + 0.7 * math.log2(0.7))
    assert step.information == pytest.approx(entropy)
    open_ = lab.with_entry(CheckResult("h01", "r", "c", {"LEN001": ["SUSPECT", "x"]}, {}, 30.0))
    assert names(plan(open_)) == [("h01", "experiment")]
    clean = lab.with_entry(CheckResult("h01", "r", "c", {"LEN001": ["CLEAN", ""]}, {}, 30.0))
    assert plan(clean) == []


def test_what_waits_for_a_check_waits_for_the_whole_hypothesis(tmp_path):
    narrow = header(FINE + CHECK.replace("settles = true", "settles = false"), probability=0.01)
    headers = {"h01": narrow, "h02": other(header(prerequisites='["h01"]', probability=0.5), 3)}
    steps = plan(lab_in(tmp_path, headers, "family = 2"))
    assert names(steps) == [("h01", "check"), ("h01", "experiment"), ("h02", "experiment")]


# Runs that lack.


def test_runs_that_lack(tmp_path):
    lab = lab_in(tmp_path, {"h01": header()})
    hypothesis = lab.hypothesis("h01")
    assert missing_runs(lab, hypothesis, None) == 20
    lab = lab.with_entry(run_of(lab, hypothesis, BASELINE, 0, 0.0))
    assert missing_runs(lab, hypothesis, None) == 19
    lab = lab.with_entry(run_of(lab, hypothesis, BASELINE, 0, 0.0))
    assert missing_runs(lab, hypothesis, None) == 19
    lab = lab.with_entry(run_of(lab, hypothesis, "changed", 0, 0.0, outcome="crashed"))
    assert missing_runs(lab, hypothesis, None) == 19
    lab = lab.with_entry(run_of(lab, hypothesis, "changed", 10, 0.0))
    assert missing_runs(lab, hypothesis, None) == 19


def test_runs_of_another_hypothesis_are_reused(tmp_path):
    lab = lab_in(tmp_path, {"h01": header(), "h02": other(header(), 3), "h03": header()}, "family = 3")
    first = lab.hypothesis("h01")
    lab = with_runs(declared(lab, first), first, {"changed": [0.0] * 4})
    assert [missing_runs(lab, lab.hypothesis(name), None) for name in ("h01", "h02", "h03")] == [12, 16, 12]


def test_runs_of_another_version_of_the_code_are_no_half_of_a_pair(tmp_path):
    """Baselines of older code run again for the remaining arms: 20 runs, and not 10."""
    lab = lab_in(tmp_path, {"h01": header()})
    hypothesis = lab.hypothesis("h01")
    for seed in range(10):
        older = replace(run_of(lab, hypothesis, BASELINE, seed, 0.0), code="older", key=f"older-{seed}")
        lab = lab.with_entry(older)
    arms = arms_of(lab, hypothesis, None)
    assert len(missing_jobs(lab, arms[BASELINE], [arms["changed"]], range(10))) == 20
    assert missing_runs(lab, hypothesis, None) == 20


def test_a_promoted_arm_is_the_baseline_of_the_next(tmp_path):
    """Its runs are done."""
    lab = lab_in(
        tmp_path, {"h01": header(), "h02": header().replace("learning_rate=2e-3", "steps=3")}, "family = 2"
    )
    first = lab.hypothesis("h01")
    lab = with_runs(declared(lab, first), first, {"changed": [9.0] * 8})
    assert missing_runs(lab, lab.hypothesis("h02"), None) == 20 - 8
    lab = lab.with_entry(Promotion("h01", "changed", ["grpo.learning_rate=2e-3"], 9.0, 8.0, 10.0))
    assert missing_runs(lab, lab.hypothesis("h02"), None) == 20 - 8


def test_minutes_are_means_of_what_was_measured(tmp_path):
    lab = lab_in(tmp_path, {"h01": header()})
    hypothesis = lab.hypothesis("h01")
    assert math.isnan(run_minutes(lab))
    assert check_minutes(lab) == CHECK_MINUTES
    for seed, seconds in enumerate((60.0, 180.0, None)):
        lab = lab.with_entry(run_of(lab, hypothesis, BASELINE, seed, 0.0, seconds=seconds))
    lab = lab.with_entry(CheckResult("h01", "r", "c", {}, {}, 30.0))
    assert run_minutes(lab) == 2
    assert check_minutes(lab) == 0.5


# Facts, and what the lab sees.


def test_facts_are_json(tmp_path):
    headers = {"h01": header(BLIND), "h02": other(header(seeds=3), 3), "h03": other(header(FINE + CHECK), 4)}
    for step in plan(lab_in(tmp_path, headers, "family = 3")):
        facts = json.loads(json.dumps(step.facts(), allow_nan=False))
        assert facts["hypothesis"] == step.hypothesis.id
        assert facts["score"] == pytest.approx(step.score)
        assert facts["kind"] == step.kind
        assert facts["minutes"] is None or step.kind == "check"
        assert ("noise" in facts) == (step.kind == "experiment")


def test_what_the_baseline_detects(tmp_path):
    lab = lab_in(tmp_path, {"h01": header()})
    table = {metric: (seen, noise) for metric, seen, noise in detectable_effects(lab)}
    assert table.keys() == {"eval/reward", "reward/mean"}
    for seen, noise in table.values():
        assert seen > noise.deviation > 0
    assert list(detectable_effects(lab_in(tmp_path / "none", {}))) == []
