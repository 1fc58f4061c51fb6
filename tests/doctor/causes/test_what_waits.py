"""A cause waits for the one that it results from, and its figures agree with each other and with its test."""

from dataclasses import replace

from truing.doctor.causes import (
    answers_cut,
    demonstrations_unpaid,
    evaluation_differs,
    evaluation_small,
    nothing_trained,
    part_unearned,
    rollouts_alike,
    short_answers,
    steps_skipped,
    steps_too_large,
    steps_too_small,
    tasks_memorised,
    tasks_solved,
    tasks_too_hard,
)
from truing.doctor.causes.example import example_history, example_sample, rising
from truing.doctor.causes.explain import why
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.example_steps import example_evaluation
from truing.doctor.rules import RULES
from truing.doctor.verdict import Claim, Finding, Verdict
from truing.types.status import Status

PAID = {"words": [0.0, 0.0]}


def suspected(history, code):
    diagnosis = Diagnosis([RULES[code]])
    claim = Claim(Verdict.SUSPECT, "some differ")
    diagnosis.add_recorded(Finding(code, RULES[code].name, history.stage, 3, claim))
    return replace(history, diagnosis=diagnosis)


def demonstrated(history, **by_family):
    return replace(history, run=replace(history.facts, demonstrated=by_family))


def test_tasks_are_not_called_hard_where_demonstrations_earn_nothing_and_rollouts_do():
    history = demonstrated(example_history(tasks_too_hard.HARD), words=[0.0, 0.0])
    assert tasks_too_hard.CAUSE.answer(history).state == "cannot tell"
    first = why(history)[0]
    assert (first.state, first.title) == ("found", "demonstrations earn nothing")
    assert "while rollouts earn up to 1" in first.because
    assert " check " in first.advice.text


def test_demonstrations_of_an_environment_that_draws_come_after_the_rule_about_it():
    history = suspected(demonstrated(example_history(), words=[0.0, 0.0]), "TOL002")
    answer = demonstrations_unpaid.CAUSE.answer(history)
    assert answer.state == "open"
    codes = [each.code or each.name for each in why(history) if each.state == "open"]
    assert codes.index("TOL002") < codes.index("demonstrations_unpaid")


def test_groups_at_1_are_not_solved_where_more_can_be_earned():
    rows = [example_sample(i, reward=1.0) for i in range(32)]
    evaluation = replace(example_evaluation("base", [1.0] * 100), bounds=(0.0, 6.0))
    answer = tasks_solved.CAUSE.answer(
        example_history(tasks_solved.SOLVED, samples=rows, evaluations=(evaluation,))
    )
    assert answer.state == "cannot tell"
    assert answer.because == "in 90% of groups all rollouts earn 1 or more, and at most 1 of a possible 6"
    unearned = part_unearned.unearned()
    known = example_history(tasks_solved.SOLVED | {"reward_part/exact": 0.0}, run=unearned.run)
    assert "none is paid for exact" in tasks_solved.CAUSE.answer(known).because


def test_what_demonstrations_earn_says_whether_a_part_is_broken():
    history = part_unearned.unearned()
    for earned, said in ((0.1, "it looks broken"), (1.1, "the tasks are too hard"), (None, "or this part")):
        known = demonstrated(history, words=[earned] * 2) if earned else history
        assert said in part_unearned.CAUSE.answer(known).because


def test_answers_that_are_cut_wait_for_a_stop_that_is_banned():
    rows = [example_sample(i, reward=0.0, tokens=4, status=Status.TRUNCATED) for i in range(32)]
    recipe = {"sampling.max_new_tokens": 4, "sampling.min_new_tokens": 4}
    history = example_history({"truncated/share": 1.0, "reward/mean": 0.0}, recipe, samples=rows)
    answer = answers_cut.CAUSE.answer(history)
    assert (answer.state, "the stop is banned" in answer.because) == ("cannot tell", True)


def test_short_answers_are_no_open_cause_of_a_reward_that_rises():
    rows = [example_sample(i, tokens=5 + 4 * (i % 4 > 0)) for i in range(64)]
    flat, up = example_history(samples=rows), example_history({"reward/mean": rising()}, samples=rows)
    assert short_answers.CAUSE.answer(flat).state == "open"
    assert short_answers.CAUSE.answer(up).state == "ruled out"
    last = [each.name for each in why(flat) if each.state == "open"][-1]
    assert last == "short_answers"


def test_rollouts_that_are_a_stop_alone_or_begin_with_forced_tokens_are_not_called_the_same():
    same = rollouts_alike.certain()
    assert rollouts_alike.CAUSE.answer(same).state == "found"
    assert rollouts_alike.CAUSE.answer(suspected(same, "LEN004")).state == "cannot tell"
    forced = example_history(recipe={"episode.forced_prefix": "0", "episode.force_rate": 1.0})
    answer = rollouts_alike.CAUSE.answer(replace(forced, samples=same.samples))
    assert (answer.state, "episode.force_rate" in answer.because) == ("cannot tell", True)


def test_steps_that_a_gate_holds_back_are_not_counted_as_trained():
    skipped = example_history(recipe={"gates.min_trained_tokens": 10**6}, label=steps_skipped.SKIPPED_LABEL)
    answer = nothing_trained.CAUSE.answer(skipped)
    assert answer.because == "24 of 24 steps did not reach the optimizer, for a gate"
    some = [replace(row, loss_label="on_policy" if i else "held_back") for i, row in enumerate(skipped.steps)]
    answer = nothing_trained.CAUSE.answer(replace(skipped, steps=some))
    assert answer.because == "tokens were trained in 23 of 24 steps"
    masked = nothing_trained.CAUSE.answer(example_history({"gate/ratio_masked_share": 0.84}))
    assert masked.because == "tokens were trained in 24 of 24 steps, without 84% for a gate"


def test_the_cap_that_is_advised_lets_the_measured_kl_pass():
    recipe = {"kl.coef": 0.01, "kl.cap": 1e-9}
    history = example_history({"kl_trained/k3": 0.07}, recipe, label=steps_skipped.SKIPPED_LABEL)
    assert steps_skipped.CAUSE.answer(history).advice.changes == ("kl.cap=0.1",)


def test_that_nothing_fell_is_said_with_the_figures_that_are_known():
    halved = steps_too_large.CAUSE.answer(steps_too_large.sharper()).because
    assert halved == (
        "the reward did not fall; the entropy went from 0.7 to 0.22 nats per token, which is no collapse"
    )
    near = steps_too_large.CAUSE.answer(example_history({"kl_all/k3": 0.05})).because
    assert near.endswith("the policy is 0.05 nats per token from its reference")


def test_after_no_answer_changed_the_rate_is_a_hundred_times_larger():
    for changed, rate in ((0, "1e-06"), (2, "1e-07")):
        pair = [
            replace(
                example_evaluation(name, [0.0] * 100),
                answers={f"eval-{i}": [f"{name * (i < changed)}"] for i in range(100)},
            )
            for name in ("base", "after_grpo")
        ]
        history = example_history({"lr": 1e-8}, {"grpo.learning_rate": 1e-8}, evaluations=pair)
        answer = steps_too_small.CAUSE.answer(history)
        assert answer.state == "found"
        assert f"grpo.learning_rate={rate}" in answer.advice.changes


def test_the_tasks_of_an_evaluation_that_is_advised_are_told_with_what_they_give():
    rewards = [float(i % 2) for i in range(60)]
    pair = (example_evaluation("base", rewards), example_evaluation("after_grpo", rewards[::-1]))
    answer = evaluation_small.CAUSE.answer(example_history(recipe={"env.eval": 240}, evaluations=pair))
    assert "and env.eval is 240, which give about ± 0." in answer.because
    assert "eval.tasks=240" in answer.advice.text


def test_a_greedy_evaluation_is_repeated_at_the_temperature_of_rollouts():
    answer = next(make for make in evaluation_differs.CAUSE.found[1:])()
    answer = evaluation_differs.CAUSE.answer(answer)
    assert "eval.temperature=1" in answer.advice.text
    assert "at eval.temperature = 0" in answer.because


def test_prompts_are_counted_beside_tasks():
    answer = tasks_memorised.CAUSE.answer(tasks_memorised.CAUSE.found[1]())
    assert answer.title == "tasks repeat a few prompts"
    assert "the last 16 groups are of 16 tasks with 3 prompts" in answer.because
