"""Whether arms themselves learned is told with each verdict: rewards before and after, by task."""

import json

import pytest
from labs import declared, lab_in, run_of, with_runs

from truing.lab.report.text import verdict_lines
from truing.lab.report.write import write_report
from truing.lab.verdicts.own_gain import own_gains
from truing.lab.verdicts.verdict import judge

TASKS = [f"task-{i}" for i in range(12)]


def with_gains(folder, *, baseline, arm, seeds=2):
    """The lab once each arm has runs whose tasks went from 0.5 to the given rewards."""
    lab = lab_in(folder)
    hypothesis = lab.hypotheses["h01"]
    lab = declared(lab, hypothesis)
    for label, after in {"baseline": baseline, "changed": arm}.items():
        for seed in range(seeds):
            facts = {"before": dict.fromkeys(TASKS, 0.5), "tasks": dict.fromkeys(TASKS, after)}
            lab = lab.with_entry(run_of(lab, hypothesis, label, seed, after, bounds=(0.0, 1.0), **facts))
    return lab, hypothesis


def shown(lab, hypothesis):
    return "\n".join(text for text, _ in verdict_lines(judge(lab, hypothesis)))


@pytest.mark.parametrize(("after", "text"), [(1.0, "a gain"), (0.5, "not shown to learn"), (0.0, "a loss")])
def test_what_the_baseline_gained_is_told(tmp_path, after, text):
    lab, hypothesis = with_gains(tmp_path, baseline=after, arm=1.0)
    (line,) = [line for line in shown(lab, hypothesis).splitlines() if line.startswith("  baseline:")]
    assert f"reward 0.500 → {after:.3f}, {after - 0.5:+.3f} [" in line
    assert line.endswith(f"of 12 tasks: {text}")


def test_differences_between_arms_that_do_not_learn_are_named(tmp_path):
    sentence = "differences between arms are between runs that do not learn"
    assert sentence in shown(*with_gains(tmp_path / "none", baseline=0.5, arm=0.0))
    assert sentence not in shown(*with_gains(tmp_path / "arm", baseline=0.5, arm=1.0))
    assert sentence not in shown(*with_gains(tmp_path / "both", baseline=1.0, arm=1.0))


def test_the_report_and_the_json_have_it(tmp_path):
    lab, hypothesis = with_gains(tmp_path, baseline=0.5, arm=0.5)
    write_report(lab)
    assert "baseline: reward 0.500 → 0.500" in hypothesis.path.read_text()
    assert "runs that do not learn" in hypothesis.path.read_text()
    facts = json.loads(json.dumps(judge(lab, hypothesis).facts(), allow_nan=False))
    assert facts["gains"]["baseline"]["learned"] is False
    assert facts["gains"]["changed"]["gain"] == 0.0


def test_seeds_are_averaged_by_task_and_others_are_left_out(tmp_path):
    """Two seeds gain 0.5 and 0.1: 0.3 a task. A crash, another seed and an older ledger do not count."""
    lab = lab_in(tmp_path)
    hypothesis = lab.hypotheses["h01"]
    lab = declared(lab, hypothesis)
    before = dict.fromkeys(TASKS, 0.25)
    for seed, after in enumerate((0.75, 0.35)):
        tasks = dict.fromkeys(TASKS, after)
        lab = lab.with_entry(run_of(lab, hypothesis, "baseline", seed, after, before=before, tasks=tasks))
    lab = lab.with_entry(run_of(lab, hypothesis, "baseline", 2, 9.0, before=before, outcome="crashed"))
    lab = lab.with_entry(run_of(lab, hypothesis, "baseline", 3, 9.0))
    lab = lab.with_entry(run_of(lab, hypothesis, "baseline", 50, 9.0, before=before))
    arms = lab.declaration(hypothesis).arms
    (gain,) = own_gains(lab.history, arms, range(10)).values()
    assert (gain.before.estimate().mean, gain.after.estimate().mean) == (0.25, pytest.approx(0.55))
    assert (gain.paired.mean, gain.paired.tasks) == (pytest.approx(0.3), 12)


def test_a_task_that_one_side_could_not_grade_is_left_out(tmp_path):
    lab = lab_in(tmp_path)
    hypothesis = lab.hypotheses["h01"]
    lab = declared(lab, hypothesis)
    before = {"task-0": 0.0, "task-1": 0.0, "gone": 1.0}
    lab = lab.with_entry(run_of(lab, hypothesis, "baseline", 0, 1.0, before=before))
    gain = own_gains(lab.history, lab.declaration(hypothesis).arms, range(10))["baseline"]
    assert (gain.paired.mean, gain.paired.tasks) == (1.0, 2)


def test_without_an_evaluation_before_it_is_unknown_and_said(tmp_path):
    lab = lab_in(tmp_path)
    hypothesis = lab.hypotheses["h01"]
    lab = with_runs(declared(lab, hypothesis), hypothesis, {"changed": [1.0, 1.0]})
    assert "whether an arm learned is unknown" in shown(lab, hypothesis)
