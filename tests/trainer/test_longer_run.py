"""Runs that are resumed with more steps than they began with, and runs that are finished."""

import pytest
from runs import Interrupt, assert_same_run, crash_at

import truing
from truing.analysis.changed_settings import planned_steps, standing_rollbacks
from truing.doctor.postmortem import diagnose_run
from truing.doctor.verdict import Verdict
from truing.errors import RecordError
from truing.record import Event, RunReader

PPO = {"stages": ["ppo"], "ppo": {"steps": 2, "prompts_per_step": 4, "learning_rate": 1e-3}}
SFT = {"stages": ["sft"], "sft": {"steps": 2}, "lora": {"rank": 4}}
GRPO = {"stages": ["grpo"], "grpo": {"steps": 2}, "eval": {"every": 2, "tasks": 4}}
REGULAR = {"stages": ["grpo"], "grpo": {"steps": 2}, "checkpoint_every": 1, "guard": {"window": 2}}


def longer(table, steps):
    """The table with more steps of its last stage."""
    stage = table["stages"][-1]
    return {**table, stage: {**table[stage], "steps": steps}}


@pytest.mark.integration
@pytest.mark.parametrize("changes", [PPO, SFT, GRPO, REGULAR], ids=["ppo", "sft lora", "grpo", "guard"])
def test_with_a_constant_rate_a_longer_run_equals_one_that_was_planned_so(mini, tmp_path, changes):
    table = mini(**changes)
    whole = truing.train(longer(table, 4), out=tmp_path / "whole")
    truing.train(table, out=tmp_path / "parts")
    with pytest.raises(Interrupt):  # and it is killed once more
        truing.train(
            longer(table, 4),
            out=tmp_path / "parts",
            resume=True,
            on_event=crash_at(table["stages"][-1], 2),
        )
    result = truing.train(longer(table, 4), out=tmp_path / "parts", resume=True)
    assert_same_run(whole.run, result.run, audits=False)  # a stage's last step has the audits it lacks
    for name, estimate in whole.estimates().items():
        assert result.estimates()[name] == estimate
    assert RunReader(result.run).recipe() == RunReader(whole.run).recipe()
    assert RunReader(result.run).run_fact("recipe") == RunReader(whole.run).run_fact("recipe")
    texts = [event.payload["text"] for event in RunReader(result.run).events() if event.kind == "longer"]
    assert [text.split(": ")[1] for text in texts] == ["the run equals one that was planned with 4"]


@pytest.mark.integration
def test_an_evaluation_after_the_stage_is_one_within_it(mini, tmp_path):
    table = mini(stages=["grpo"], grpo={"steps": 1}, eval={"tasks": 4})
    truing.train(table, out=tmp_path / "run")
    result = truing.train(longer(table, 2), out=tmp_path / "run", resume=True)
    assert list(result.evaluations) == ["base", "grpo@1", "after_grpo"]
    assert [each.name for each in result.evaluations.values()] == ["base", "grpo@1", "after_grpo"]


@pytest.mark.integration
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_another_schedule_says_what_changes(mini, tmp_path, schedule):
    """The doctor judges each step by the rate that it was to have."""
    table = mini(stages=["grpo"], grpo={"steps": 2}, optimizer={"schedule": schedule}, eval={"tasks": 0})
    truing.train(table, out=tmp_path / "run")
    whole = truing.train(longer(table, 4), out=tmp_path / "whole")
    result = truing.train(longer(table, 4), out=tmp_path / "run", resume=True)
    (text,) = [each.payload["text"] for each in RunReader(result.run).events() if each.kind == "longer"]
    rates, planned = (
        [row.metrics["lr"] for row in RunReader(run).steps()] for run in (result.run, whole.run)
    )
    assert rates[1] < planned[1]
    assert rates[2:] == planned[2:]
    assert f"(the last {rates[1]:.3g})" in text
    assert f"(the first {rates[2]:.3g})" in text
    assert "differs from one that was planned with 4" in text
    results = {each.code: each.verdict for each in diagnose_run(result.run).results()}
    assert results["OPT004"] is Verdict.CLEAN


@pytest.mark.integration
def test_fewer_steps_and_more_of_a_stage_that_others_began_from_are_refused(mini, tmp_path):
    table = mini(sft={"steps": 1}, grpo={"steps": 2}, eval={"tasks": 0})
    truing.train(table, out=tmp_path / "run")
    for stage, steps, expected in (("grpo", 1, "at least 2"), ("sft", 2, 1)):
        changed = {**table, stage: {**table[stage], "steps": steps}}
        with pytest.raises(RecordError, match=rf"{stage}\.steps' differs") as error:
            truing.train(changed, out=tmp_path / "run", resume=True)
        assert error.value.expected == expected


@pytest.mark.integration
def test_a_finished_run_says_so_and_stays_as_it_is(mini, tmp_path):
    table = mini(stages=["grpo"], grpo={"steps": 1}, eval={"tasks": 4})
    result = truing.train(table, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in result.run.rglob("*") if path.is_file()}
    told = []
    again = truing.train(
        table, out=tmp_path / "run", resume=True, on_event=lambda kind, facts: told.append((kind, facts))
    )
    assert again == result
    assert [kind for kind, _ in told] == ["resumed", "note"]
    assert "this run is finished: all 1 steps of grpo are done" in told[1][1]["text"]
    assert {path: path.read_bytes() for path in result.run.rglob("*") if path.is_file()} == before


def events(*facts):
    return [Event(0.0, kind, {"stage": "grpo", **payload}) for kind, payload in facts]


LONGER = ("longer", {"step": 20, "before": 20, "steps": 40})


@pytest.mark.parametrize(
    ("recorded", "planned"),
    [
        ([], {0: 40, 30: 40}),
        ([LONGER], {0: 20, 19: 20, 20: 40, 30: 40}),
        ([LONGER, LONGER, ("resumed", {"step": 20})], {19: 20, 20: 40}),  # killed, and made longer again
        ([LONGER, ("resumed", {"step": 30})], {19: 20, 20: 40}),
        ([LONGER, ("resumed", {"step": 10})], {9: 20, 10: 40}),  # back, and trained again
        ([LONGER, ("rollback", {"to": 10, "kept": "a"})], {9: 20, 10: 40}),
        ([("resumed", {"step": 10}), LONGER], {10: 20, 20: 40}),
        ([LONGER, ("longer", {"step": 40, "before": 40, "steps": 80})], {19: 20, 39: 40, 40: 80}),
        ([("longer", {"step": 0, "before": 20, "steps": 40})], {0: 40}),
    ],
)
def test_each_step_had_the_plan_of_its_time(recorded, planned):
    now = 80 if len(recorded) == 2 and recorded[1][0] == "longer" and recorded[1][1]["steps"] == 80 else 40
    assert {step: planned_steps(events(*recorded), "grpo", step, now) for step in planned} == planned
    assert planned_steps(events(*recorded), "sft", 0, 7) == 7


def test_rollbacks_that_stand():
    first, again, second = (
        ("rollback", {"to": to, "kept": kept})
        for to, kept in ((30, "grpo-1"), (30, "grpo-1"), (10, "grpo-2"))
    )
    for recorded, kept in (
        ([first, again], ["grpo-1"]),
        ([first, ("resumed", {"step": 30})], ["grpo-1"]),
        ([first, ("resumed", {"step": 20})], []),
        ([first, ("resumed", {"step": 20}), second], ["grpo-2"]),
        ([second, first, ("resumed", {"step": 20})], ["grpo-2"]),
    ):
        assert [each["kept"] for each in standing_rollbacks(events(*recorded), "grpo")] == kept
