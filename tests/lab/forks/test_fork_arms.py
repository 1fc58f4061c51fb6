"""The arms of an experiment on a run, and where its forks begin."""

from dataclasses import replace

from truing.doctor.causes.cause import Advice, Answer
from truing.doctor.causes.example import example_history, falling
from truing.lab.forks.arms import MOST_ARMS, Arm, arms_of, confounded, fork_step


def answer(title, *changes, state="open"):
    return Answer(state, "seen", advice=Advice("", changes=changes), title=title)


def test_found_and_open_causes_are_arms_and_rates_follow():
    answers = [
        answer("cut", "sampling.max_new_tokens=64", state="found"),
        answer("small", "grpo.learning_rate=0.003", "grpo.steps=20"),
        answer("excluded", "kl.coef=0", state="ruled out"),
        answer("unknown", "kl.coef=1", state="cannot tell"),
    ]
    arms = arms_of(example_history(), answers)
    assert [(arm.name, arm.changes) for arm in arms] == [
        ("cut", ("sampling.max_new_tokens=64",)),
        ("small", ("grpo.learning_rate=0.003",)),  # three times the rate is not tried twice
        ("a third of the rate", ("grpo.learning_rate=0.000333333",)),
    ]


def test_what_a_fork_within_the_stage_cannot_change_is_no_arm():
    history = example_history(recipe={"stages": ["sft", "grpo"], "sft.steps": 3})
    changes = ("sft.steps=6", "model.name=tiny", "lora.rank=4", "eval.tasks=9")
    arms = arms_of(history, [answer(change, change) for change in changes])
    assert [arm.name for arm in arms] == ["three times the rate", "a third of the rate"]


def test_there_are_only_so_many():
    answers = [answer(str(i), f"kl.coef={i}") for i in range(9)]
    assert [arm.name for arm in arms_of(example_history(), answers)] == [str(i) for i in range(MOST_ARMS)]


def test_forks_begin_before_a_fall_where_a_checkpoint_is_kept():
    fell = example_history({"reward/mean": falling(count=8)})
    assert fork_step(fell, [4, 8, 16, 24]) == 8
    assert fork_step(fell, [16, 24]) == 16
    assert fork_step(example_history(), [4, 8, 16, 24]) == 24
    late = replace(fell, steps=[replace(row, step=row.step + 100) for row in fell.steps])
    assert fork_step(late, [100, 107, 109]) == 107


def test_what_rewards_of_the_same_policy_depend_on_is_confounded():
    """A fork that samples otherwise is also evaluated otherwise, but for the temperature."""
    recipe = example_history().facts.recipe
    arm = Arm("cut", ("sampling.max_new_tokens=64", "grpo.learning_rate=0.1", "sampling.temperature=2"), "")
    assert confounded(arm, recipe) == ["sampling.max_new_tokens=64"]
    unevaluated = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"tasks": 0})})
    assert confounded(arm, unevaluated) == ["sampling.max_new_tokens=64", "sampling.temperature=2"]
    assert confounded(Arm("smaller", ("grpo.learning_rate=0.1",), ""), recipe) == []
