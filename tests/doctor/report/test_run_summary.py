"""What the first screen says of a run: how it stands, what it earns, and what was found."""

import math

import numpy as np
import pytest
from recorded import make_sample
from runs import HOT, Interrupt, crash_at, not_finite_at
from scipy import stats
from shown import evaluation, finding, opened_run, write

import truing
from truing.analysis.estimate import Estimate
from truing.analysis.incremental_reader import IncrementalReader
from truing.doctor.report.recorded_findings import RecordedFinding
from truing.doctor.report.run_summary import KILLED_TEXT, RECENT_STEPS, Interval, run_summary
from truing.doctor.verdict import Verdict
from truing.errors import GateError, GuardError, ProvenError
from truing.record import archive_undone
from truing.trainer.exit_status import exit_facts


def summary_of(folder):
    run = IncrementalReader(folder)
    run.refresh()
    return run_summary(run)


def ended(folder, *events, stages=("grpo",), **recipe):
    """A run with a step and these events, which nobody writes any more."""
    with opened_run(folder, stages=list(stages), **recipe) as writer:
        write(writer, 0, stages[0])
        for kind, told in events:
            writer.write_event(kind, **told)
    return summary_of(folder)


def stopped(error):
    return "stopped", exit_facts(error)


def test_a_run_that_somebody_writes_is_running(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        assert (summary_of(tmp_path / "run").state, summary_of(tmp_path / "run").current_stage) == (
            "running",
            None,
        )
        write(writer, 0)
        now = summary_of(tmp_path / "run")
        assert (now.state, now.why, now.current_stage) == ("running", "", ("grpo", 1, 3))
    assert summary_of(tmp_path / "run").state == "crashed"


PROVEN = ProvenError("MSK002 other-mask: a token of the prompt is trained (grpo 1 sample s token 3)")


@pytest.mark.parametrize(
    ("events", "state", "why"),
    [
        ([("finished", {})], "finished", ""),
        ([], "crashed", KILLED_TEXT),
        ([stopped(KeyboardInterrupt())], "stopped", "a user stopped it"),
        ([stopped(ValueError("no such\nthing"))], "crashed", "ValueError: no such"),
        ([stopped(ValueError())], "crashed", "ValueError"),
        (
            [stopped(GateError("the policy is 3 nats away", expected="less"))],
            "stopped",
            "the policy is 3 nats away",
        ),
        ([("finding", finding("MSK001", "PROVEN")), stopped(PROVEN)], "stopped by a finding", PROVEN.what),
        ([("gave_up", {"stage": "grpo", "step": 0, "reason": "it broke"})], "given up", "it broke"),
        (
            [
                ("gave_up", {"stage": "grpo", "step": 0, "reason": "it broke"}),
                stopped(GuardError("grpo is unstable after 2 rollbacks: it broke")),
            ],
            "given up",
            "grpo is unstable after 2 rollbacks: it broke",
        ),
        ([stopped(KeyboardInterrupt()), ("resumed", {"stage": "grpo", "step": 1})], "crashed", KILLED_TEXT),
        ([("finished", {}), ("resumed", {"stage": "grpo", "step": 1})], "crashed", KILLED_TEXT),
        (
            [stopped(KeyboardInterrupt()), ("resumed", {"stage": "grpo", "step": 1}), ("finished", {})],
            "finished",
            "",
        ),
    ],
)
def test_how_a_run_ended(tmp_path, events, state, why):
    now = ended(tmp_path / "run", *events)
    assert (now.state, now.why) == (state, why)


def test_a_run_that_goes_on_after_it_was_stopped_is_running(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0)
        writer.write_event(*stopped(KeyboardInterrupt())[:1], **exit_facts(KeyboardInterrupt()))
        assert summary_of(tmp_path / "run").state == "running"


@pytest.mark.integration
def test_real_runs_end_as_they_are_reported(tmp_path, mini, monkeypatch):
    with pytest.raises(Interrupt):
        truing.train(mini(), out=tmp_path / "crashed", on_event=crash_at("grpo", 1))
    now = summary_of(tmp_path / "crashed")
    assert (now.state, now.why, now.current_stage) == ("crashed", "Interrupt", ("grpo", 2, 3))
    not_finite_at(monkeypatch, above=0.0)
    with pytest.raises(GuardError):
        truing.train(mini(**HOT), out=tmp_path / "given-up", on_event=lambda *_: None)
    now = summary_of(tmp_path / "given-up")
    assert (now.state, now.why[:33]) == ("given up", "grpo is unstable after 2 rollback")
    kept = summary_of(tmp_path / "given-up/abandoned/grpo-1")
    assert (kept.state, kept.why) == ("undone", "the guard rolled back these steps")
    assert kept.seconds > 0


def test_a_folder_that_is_called_abandoned_makes_no_run_undone(tmp_path):
    assert ended(tmp_path / "abandoned/run").state == "crashed"
    ended(tmp_path / "whole")
    archive_undone(tmp_path / "whole", "grpo", 0, "grpo-1")
    assert summary_of(tmp_path / "whole/abandoned/grpo-1").state == "undone"


def rewarded(folder, rewards, stage="grpo", before=()):
    with opened_run(folder, sft={"steps": 99}, grpo={"steps": 99}) as writer:
        for step, reward in enumerate(before):
            write(writer, step, "sft", **{"reward/mean": reward})
        for step, reward in enumerate(rewards):
            write(writer, step, stage, **{"reward/mean": reward})
    return summary_of(folder).reward


def test_the_reward_is_the_mean_of_the_last_steps_with_students_interval(tmp_path):
    values = [0.9, *(0.1 * i for i in range(RECENT_STEPS))]
    got = rewarded(tmp_path / "run", values)
    last = np.array(values[-RECENT_STEPS:])
    low, high = stats.t.interval(0.95, RECENT_STEPS - 1, loc=last.mean(), scale=stats.sem(last))
    assert (got.mean, got.low, got.high) == pytest.approx((0.45, low, high))
    # by hand: s = 0.30277, t(9) = 2.2622, s t / √10 = 0.21659
    assert got.high - got.mean == pytest.approx(0.21659, abs=1e-5)


def test_a_reward_that_is_not_known_is_none_and_one_alone_has_no_interval(tmp_path):
    got = rewarded(tmp_path / "one", [math.nan, 0.25, math.nan])
    assert (got.mean, math.isnan(got.low), str(got)) == (0.25, True, "0.250")
    assert rewarded(tmp_path / "none", [math.nan]) is None
    before = rewarded(tmp_path / "stages", [math.nan], before=(0.5, 0.5))
    assert (before.mean, math.isnan(before.low), str(before)) == (0.5, True, "0.500")
    assert str(Interval(0.1, 0.05, 0.15)) == "0.100 [0.050, 0.150]"


def test_a_new_stage_has_rewards_of_its_own(tmp_path):
    assert rewarded(tmp_path / "run", [0.5, 1.0], before=[0.0] * 9).mean == 0.75


def test_before_the_first_step_there_are_no_numbers(tmp_path):
    with opened_run(tmp_path / "run", name="fresh"):
        now = summary_of(tmp_path / "run")
    assert (now.name, now.current_stage, now.reward, now.loss, now.seconds, now.tokens) == (
        "fresh",
        None,
        None,
        "",
        0.0,
        0.0,
    )
    assert math.isnan(now.tokens_per_s)
    assert math.isnan(now.left)
    assert now.stages == (("sft", 0, 3), ("grpo", 0, 3))


def test_a_run_of_sft_alone_has_no_reward(tmp_path):
    with opened_run(tmp_path / "run", stages=["sft"]) as writer:
        rows = [make_sample("0/sft/0/0", reward=math.nan)]
        write(writer, 0, "sft", rows=rows, **{"reward/mean": math.nan, "loss/supervised": 2.0})
    now = summary_of(tmp_path / "run")
    assert (now.reward, now.current_stage, now.stages) == (None, ("sft", 1, 3), (("sft", 1, 3),))


def test_seconds_and_tokens_add_up_and_the_pace_is_the_stages_own(tmp_path):
    with opened_run(tmp_path / "run", sft={"steps": 4}, grpo={"steps": 9}) as writer:
        for step in range(4):
            write(writer, step, "sft", seconds={"forward": 100.0, "record": 10.0}, **{"tokens/sampled": 1.0})
        for step in range(2):
            facts = {"tokens/sampled": 50.0, "throughput/tokens_per_s": 7.0 + step}
            write(writer, step, seconds={"forward": 1.0, "decode": 2.0 + step}, **facts)
        now = summary_of(tmp_path / "run")
    assert now.seconds == pytest.approx(4 * 110 + 3 + 4)
    assert (now.tokens, now.tokens_per_s, now.loss) == (104.0, 8.0, "on_policy")
    assert now.left == pytest.approx(7 * 3.5)
    assert math.isnan(summary_of(tmp_path / "run").left)  # it stands still


def test_evaluations_are_those_that_still_hold(tmp_path):
    rollback = {"stage": "grpo", "step": 6, "to": 3, "reason": "it broke", "kept": "abandoned/grpo-1"}
    entries = [("eval", evaluation("base", 0.1)), ("eval", evaluation("after_sft", 0.2))]
    entries += [("eval", evaluation(f"grpo@{done}", done / 10)) for done in (2, 3, 4, 6)]
    now = ended(tmp_path / "a", *entries, ("rollback", rollback), ("eval", evaluation("grpo@4", 0.9)))
    means = {name: each.mean for name, each in now.evaluations.items()}
    assert means == {"base": 0.1, "after_sft": 0.2, "grpo@2": 0.2, "grpo@3": 0.3, "grpo@4": 0.9}
    now = ended(tmp_path / "b", *entries, ("resumed", {"stage": "grpo", "step": 4}))
    assert list(now.evaluations) == ["base", "after_sft", "grpo@2", "grpo@3", "grpo@4"]
    assert now.evaluations["grpo@3"] == Estimate(
        0.3, 0.3 - 0.1, 0.3 + 0.1, tasks=8, samples=None, supposes="many tasks"
    )


def test_an_evaluation_of_an_earlier_version_is_shown_and_what_it_rests_on_is_not_said(tmp_path):
    facts = {"name": "base", "estimate": {"mean": 0.5, "low": 0.25, "high": 0.75}}
    now = ended(tmp_path / "run", ("eval", facts)).evaluations["base"]
    assert (str(now), now.tasks, now.samples) == ("0.500 [0.250, 0.750] (assumes many tasks)", None, None)


def test_an_interval_of_no_width_is_none(tmp_path):
    facts = {"name": "base", "estimate": {"mean": 0.0, "low": 0.0, "high": 0.0, "tasks": 200}}
    now = ended(tmp_path / "run", ("eval", facts)).evaluations["base"]
    assert (str(now), math.isnan(now.high)) == ("0.000 of 200 tasks", True)


def test_findings_are_folded_the_strongest_of_each_rule_first(tmp_path):
    entries = [
        ("finding", {"text": "a finding before the run, of no rule"}),
        ("finding", finding("LEN001", "SUSPECT", step=1)),
        ("finding", finding("RWD006", "CANNOT TELL", step=1)),
        ("finding", finding("SMP007", "EVIDENCE", step=2, log10_odds=7.5)),
        ("finding", finding("KLD001", "SUSPECT", step=2)),
        ("finding", finding("LEN001", "SUSPECT", step=5)),
        ("finding", finding("KLD001", "PROVEN", step=6)),
        ("incident", {"what": "x", "text": "y"}),
    ]
    now = ended(tmp_path / "run", *entries)
    assert [(each.code, str(each.verdict), each.step) for each in now.findings] == [
        ("KLD001", "PROVEN", 6),
        ("SMP007", "EVIDENCE", 2),
        ("LEN001", "SUSPECT", 1),
        ("RWD006", "CANNOT TELL", 1),
    ]
    assert (now.findings[1].log10_odds, now.incidents) == (7.5, 1)
    assert all(
        isinstance(each, RecordedFinding) and isinstance(each.verdict, Verdict) for each in now.findings
    )


def test_what_was_undone_is_reported_so_and_what_still_holds_goes_first(tmp_path):
    rollback = {"stage": "grpo", "step": 6, "to": 3, "reason": "it broke", "kept": "abandoned/grpo-1"}
    entries = [
        ("finding", finding("LEN001", "SUSPECT", step=4)),
        ("finding", finding("LEN003", "SUSPECT", step=2)),
        ("finding", finding("KLD001", "SUSPECT", step=5)),
        ("rollback", rollback),
        ("finding", finding("LEN001", "SUSPECT", step=7)),
    ]
    now = ended(tmp_path / "run", *entries)
    assert [(each.code, each.step, each.undone) for each in now.findings] == [
        ("LEN003", 2, ""),
        ("LEN001", 7, ""),
        ("KLD001", 5, "undone by a rollback: see abandoned/grpo-1"),
    ]


def test_facts_are_no_findings(tmp_path):
    entries = [
        ("fact", finding("LEN003", "FACT", step=2)),
        ("finding", finding("KLD001", "SUSPECT", step=2)),
        ("fact", finding("LEN003", "FACT", step=7)),
        ("rollback", {"stage": "grpo", "step": 8, "to": 5, "reason": "it broke", "kept": "abandoned/grpo-1"}),
    ]
    now = ended(tmp_path / "run", *entries)
    assert [each.code for each in now.findings] == ["KLD001"]
    assert [(each.code, each.step, each.undone) for each in now.facts] == [("LEN003", 2, "")]


def test_a_finding_that_is_made_again_after_a_resume_is_reported_once(tmp_path):
    same = ("finding", finding("LEN001", "SUSPECT", step=4))
    now = ended(tmp_path / "run", same, ("resumed", {"stage": "grpo", "step": 2}), same)
    assert [(each.step, each.undone) for each in now.findings] == [(4, "")]
    now = ended(tmp_path / "other", same, ("resumed", {"stage": "grpo", "step": 2}))
    assert [each.undone for each in now.findings] == ["repeated when the run was resumed"]
    now = ended(tmp_path / "stage", same, ("resumed", {"stage": "ppo", "step": 2}))
    assert [each.undone for each in now.findings] == [""]
