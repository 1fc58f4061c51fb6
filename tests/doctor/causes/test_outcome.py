"""What became of a stage: evaluations decide where they can, and not each rise is learning."""

from dataclasses import replace

from truing.doctor.causes.example import example_history, example_log, example_sample, falling, rising
from truing.doctor.causes.trend import reward_trend
from truing.doctor.example_steps import example_evaluation


def evaluated(before, after, count=100, **fields):
    ends = [[float(37 * i % 100 < 100 * share) for i in range(count)] for share in (before, after)]
    pair = example_evaluation("base", ends[0]), example_evaluation("after_grpo", ends[1])
    return example_history(evaluations=pair, **fields)


def test_an_evaluation_that_got_worse_is_the_first_line():
    outcome = evaluated(0.5, 0.1).outcome
    first, second = outcome.lines()
    assert first.startswith("evaluation 0.500 → 0.100")
    assert first.endswith("of 100 tasks: a loss")
    assert second.startswith("the reward does not clearly go up")
    assert (outcome.worse, outcome.fell, outcome.learns) == (True, True, False)


def test_an_evaluation_that_got_better_shows_learning_that_the_reward_does_not():
    outcome = evaluated(0.2, 0.6).outcome
    assert (outcome.better, outcome.learns) == (True, True)
    assert not outcome.trend.rises


def test_an_evaluation_that_cannot_decide_comes_second():
    outcome = evaluated(0.4, 0.44).outcome
    lines = list(outcome.lines())
    assert lines[0].startswith("the reward")
    assert lines[1].startswith("evaluation")
    assert not lines[1].endswith(("gain", "loss"))


def test_evaluations_of_other_tasks_are_not_compared():
    history = example_history(
        evaluations=(example_evaluation("base", [0.0] * 9), example_evaluation("after_grpo", [1.0] * 8))
    )
    assert history.outcome.gain is None


def test_a_rise_without_the_main_part_of_the_reward_is_no_learning():
    history = example_history({"reward/mean": rising(), "reward_part/exact": 0.0})
    assert history.outcome.trend.rises
    assert not history.outcome.learns
    assert next(history.outcome.lines()).endswith("no rollout earns anything of exact")


def test_a_rise_of_empty_answers_is_no_learning():
    empty = [example_sample(i, text="", reward=0.7, tokens=1) for i in range(32)]
    history = example_history({"reward/mean": rising()}, samples=empty)
    assert not history.outcome.learns
    assert next(history.outcome.lines()) == "look at this first: 32 of the last 32 answers are empty"


def test_a_gradient_of_zero_is_told_only_where_rewards_differ():
    still = example_history({"grad/norm": 0.0, "reward/mean": rising()})
    assert "gradient norm is exactly 0 in all of 24 steps" in next(still.outcome.lines())
    assert not still.outcome.learns
    tied = {"grad/norm": 0.0, "group/zero_variance_share": 1.0, "advantage/max_abs": 0.0}
    assert not example_history(tied).outcome.fault


def test_causes_are_judged_by_the_steps_before_a_fall():
    cut = [0.0] * 8 + [1.0] * 16
    history = example_history({"reward/mean": falling(), "truncated/share": cut})
    assert history.broke == 8
    assert history.late("truncated/share") == 0.0
    assert history.after("truncated/share") == 1.0


def test_where_an_evaluation_alone_shows_a_fall_the_break_is_the_best_fit():
    rewards = [0.4, 0.1, *[0.06, 0.14, 0.1] * 7]
    history = replace(
        evaluated(0.5, 0.1), steps=example_history({"reward/mean": rewards, "reward/std": 0.9}).steps
    )
    assert not history.trend.fell
    assert history.broke == 1


def scored(last, count=12, rewards=None):
    values = [0.4 + (last - 0.4) * i / (count - 1) + 0.002 * (i % 2) for i in range(count)]
    log = example_log({"reward/mean": rewards or rising()})
    return replace(log, evaluated={"eval_reward": reward_trend(values)}).outcome


def test_a_reward_that_rises_while_the_evaluation_of_its_log_does_not_is_no_learning():
    for last, verdict in ((0.3, ": a fall"), (0.4, "")):
        outcome = scored(last)
        assert not outcome.learns
        first, second = outcome.lines()
        assert first.startswith("evaluation eval_reward: 0.")
        assert first.endswith(f"over 12 steps{verdict}")
        assert second.startswith("the reward goes up")


def test_an_evaluation_of_a_log_that_rises_or_has_few_records_is_no_sign_against_learning():
    for outcome in (scored(0.6), scored(0.4, 4)):
        assert outcome.learns
        assert [line.partition(" ")[0] for line in outcome.lines()] == ["the", "evaluation"]


def test_an_evaluation_of_a_log_that_falls_beside_a_flat_reward_is_a_loss_without_a_break():
    outcome = scored(0.2, rewards=[0.4 + 0.01 * (i % 3) for i in range(24)])
    assert (outcome.down, outcome.fell) == (True, False)
    assert outcome.lower == ["eval_reward: 0.374 → 0.228 over 12 steps: a fall"]


def test_a_part_that_is_far_smaller_and_does_not_rise_is_told_with_the_rise():
    parts = {"reward_part/length": rising(-300, -75), "reward_part/exact": 0.42}
    deviations = {"part_std/length": 190.0, "part_std/exact": 0.49}
    log = example_log({"reward/mean": rising(-300, -75)} | parts | deviations)
    assert next(log.outcome.lines()).endswith("; exact does not rise: 0.42 to 0.42")
