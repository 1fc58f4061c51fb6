"""Each criterion passes, fails, is a fact or is not checked by what the steps measured."""

from dataclasses import replace

import pytest

from truing.analysis.scorecard import scorecard
from truing.record import Event, Segment, StepLine
from truing.record.step_columns import columns_of


def Step(metrics=None, stage="grpo", loss_label="on_policy"):
    """As much of a step as the scorecard reads."""
    segment = Segment("x.arrow", 1, "")
    return StepLine(stage=stage, step=0, metrics=metrics or {}, loss_label=loss_label, segment=segment)


def criteria_of(recipe, *steps, device="cpu"):
    return {criterion.name: criterion for criterion in scorecard(columns_of(steps), recipe, device)}


def verdict(recipe, name, *steps, **given):
    return criteria_of(recipe, *steps, **given)[name].verdict


def of(name, *values):
    return [Step({name: value}) for value in values]


def test_nothing_is_judged_without_a_number(recipe):
    card = criteria_of(recipe(), Step({"alignment": 0.5}, stage="sft"))  # steps of other stages are left out
    assert {criterion.verdict for criterion in card.values()} == {"not checked"}
    assert len(card) == 12


@pytest.mark.parametrize(
    ("criterion", "metric", "right", "wrong"),
    [
        ("alignment", "alignment", (1.0, 1.0), (1.0, 0.999)),
        ("ratio at the first optimizer step", "mismatch/max_abs", (1e-5, 9e-4), (1e-5, 2e-3)),
        ("KL to the reference", "kl_all/k3", (0.0, 5.0), (0.01, 0.01)),
        ("KL to the reference", "kl_all/k3", (0.0, 0.1), (0.0, -1e-9)),
        ("active tokens", "clip/clipped_share", (0.0, 0.0), (0.0, 0.01)),
        ("tool calls", "tools/valid_share", (0.0, 0.1), (0.0,) * 50),
        ("tool calls", "tools/valid_share", (0.2, 0.1), (0.2, 0.0)),
    ],
)
def test_a_criterion_is_judged_by_its_metric(recipe, criterion, metric, right, wrong):
    assert verdict(recipe(), criterion, *of(metric, *right)) == "pass"
    assert verdict(recipe(), criterion, *of(metric, *wrong)) == "fail"


def test_rounding_is_that_of_the_device(recipe):
    steps = of("mismatch/max_abs", 0.05)
    assert verdict(recipe(), "ratio at the first optimizer step", *steps) == "fail"
    assert verdict(recipe(), "ratio at the first optimizer step", *steps, device="cuda") == "pass"


def test_ratios_need_only_move_where_there_is_a_second_optimizer_step(recipe):
    still, moving = of("ratio/std", 1e-8), of("ratio/std", 1e-8, 0.05)
    assert verdict(recipe(), "ratio at later optimizer steps", *still) == "fact"
    twice = recipe(grpo={"inner_epochs": 2})
    assert verdict(twice, "ratio at later optimizer steps", *still) == "fail"
    assert verdict(twice, "ratio at later optimizer steps", *moving) == "pass"


def test_with_several_optimizer_steps_clipping_and_the_first_kl_are_facts(recipe):
    twice = recipe(grpo={"minibatches": 2})
    assert verdict(twice, "active tokens", *of("clip/clipped_share", 0.2)) == "fact"
    assert verdict(twice, "KL to the reference", *of("kl_all/k3", 0.01)) == "pass"


def test_each_stage_starts_at_its_own_reference(recipe):
    both = recipe(stages=["rloo", "grpo"], rloo={"steps": 1, "learning_rate": 1e-3})
    steps = [Step({"kl_all/k3": 0.0}, "rloo"), Step({"kl_all/k3": 0.4}, "rloo"), Step({"kl_all/k3": 0.4})]
    assert verdict(both, "KL to the reference", *steps) == "fail"
    assert verdict(both, "KL to the reference", *steps[:2], Step({"kl_all/k3": 0.0})) == "pass"


def test_dropout_moves_the_first_ratio_and_that_is_known(recipe):
    steps = of("mismatch/max_abs", 0.03)
    assert verdict(recipe(lora={"dropout": 0.1}), "ratio at the first optimizer step", *steps) == "fact"
    assert verdict(recipe(lora={"dropout": 0.0}), "ratio at the first optimizer step", *steps) == "fail"


def test_a_learnable_share_is_a_fact_unless_it_was_asked_for(recipe):
    steps = of("tokens/learnable_share", 0.2, 0.9)
    assert verdict(recipe(), "learnable tokens", *steps) == "fact"
    assert verdict(recipe(gates={"min_trained_share": 0.1}), "learnable tokens", *steps) == "pass"
    assert verdict(recipe(gates={"min_trained_share": 0.3}), "learnable tokens", *steps) == "fail"


def test_a_loss_is_judged_by_its_label_and_progress_shown_by_reward(recipe):
    steps = [Step({"reward/mean": 0.1}), Step({"reward/mean": 0.6}, loss_label="no_signal")]
    result = criteria_of(recipe(), *steps)["policy loss"]
    assert result.verdict == "pass"
    assert result.measured == "on_policy 1, no_signal 1; reward 0.100 → 0.600"
    assert verdict(recipe(), "policy loss", *steps, Step(loss_label="zero_gradient")) == "fail"


@pytest.mark.parametrize("label", ["no_signal", "held_back"])
def test_a_run_in_which_nothing_was_ever_to_move_fails(recipe, label):
    idle = [Step(loss_label=label)] * 12
    assert verdict(recipe(), "policy loss", *idle) == "fail"
    assert verdict(recipe(), "policy loss", *idle, Step()) == "fail"
    assert verdict(recipe(), "policy loss", *idle, *[Step()] * 12) == "pass"


def test_steps_without_a_signal_are_as_wanted_where_tasks_are_solved(recipe):
    solved = [Step({"group/all_right_share": 0.9}, loss_label="no_signal")] * 24
    assert verdict(recipe(), "policy loss", Step(), *solved) == "pass"
    wrong = [Step({"group/all_right_share": 0.1}, loss_label="no_signal")] * 24
    assert verdict(recipe(), "policy loss", Step(), *wrong) == "fail"


def test_a_first_call_counts_within_fifty_steps(recipe):
    late = of("tools/valid_share", *[0.0] * 50, 1.0)
    assert verdict(recipe(), "tool calls", *late) == "fail"
    assert verdict(recipe(), "tool calls", *late[1:]) == "pass"
    assert verdict(recipe(), "tool calls", *late[:10]) == "fact"  # there is time left


def test_a_critic_moves_where_there_is_something_to_predict(recipe):
    ppo = recipe(stages=["ppo"], ppo={"steps": 2, "learning_rate": 1e-3})

    def steps(moved, returns):
        return [Step({"value/head_step": moved, "returns/mean": returns}, "ppo")] * 3

    assert verdict(ppo, "critic", *steps(0.1, 0.5)) == "pass"
    assert verdict(ppo, "critic", *steps(0.0, 0.5)) == "fail"
    assert verdict(ppo, "critic", *steps(0.0, 0.0)) == "fact"


def test_what_a_guard_undid_is_reported_and_giving_up_fails(recipe):
    def stability(*kinds):
        at = {"stage": "grpo", "step": 9, "to": 5}
        return of_events(recipe(), *(Event(0.0, kind, at) for kind in kinds))["stability"]

    assert stability("numbers").verdict == "pass"
    assert (stability("rollback").verdict, stability("rollback").measured) == ("fact", "1 rollbacks")
    assert stability("rollback", "gave_up").verdict == "fail"


def of_events(recipe, *events):
    return {each.name: each for each in scorecard(columns_of([Step()]), recipe, "cpu", events)}


def evaluated(name, share):
    reward = {f"task-{i}": float(37 * i % 100 < 100 * share) for i in range(100)}
    return Event(0.0, "eval", {"name": name, "reward": reward, "failed": {}, "bounds": (0.0, 1.0)})


@pytest.mark.parametrize(("after", "expected"), [(0.1, "fail"), (0.52, "fact"), (0.9, "pass")])
def test_an_evaluation_that_got_worse_fails(recipe, after, expected):
    result = of_events(recipe(), evaluated("after_sft", 0.5), evaluated("after_grpo", after))["evaluation"]
    assert result.verdict == expected
    assert result.measured.startswith(f"grpo: 0.500 → {after:.3f}, ")
    assert of_events(recipe(), evaluated("after_grpo", 0.5))["evaluation"].verdict == "not checked"


def finding(verdict, step=3):
    return Event(0.0, "finding", {"code": "MSK003", "verdict": verdict, "stage": "grpo", "step": step})


def test_a_proven_fault_fails_unless_its_step_was_undone(recipe):
    result = of_events(recipe(), finding("PROVEN"), finding("SUSPECT"))["proven faults"]
    assert (result.verdict, result.measured) == ("fail", "1 finding: MSK003 at grpo 4")
    assert of_events(recipe(), finding("SUSPECT"))["proven faults"].verdict == "pass"
    resumed = Event(0.0, "resumed", {"stage": "grpo", "step": 2})
    stages = [Event(0.0, "stage", {"stage": "grpo", "steps": 9, "first_step": 0})]
    assert of_events(recipe(), *stages, finding("PROVEN"), resumed)["proven faults"].verdict == "pass"


def test_steps_that_a_fork_has_of_its_parent_are_not_judged(recipe):
    wrong, right = (Step({"alignment": value}) for value in (0.5, 1.0))
    steps = columns_of([wrong, wrong, replace(right, step=2)])
    for events, expected in (([], "fail"), ([Event(0.0, "forked", {"stage": "grpo", "step": 2})], "pass")):
        found = Event(0.0, "finding", {"code": "OPT013", "verdict": "PROVEN", "stage": "grpo", "step": 1})
        card = {each.name: each.verdict for each in scorecard(steps, recipe(), "cpu", [found, *events])}
        assert card["alignment"] == card["proven faults"] == expected
