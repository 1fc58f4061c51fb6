"""`truing why` over records of many shapes: what each excludes is not named, and no test can show nothing."""

from dataclasses import dataclass, field, replace

import pytest

from truing.doctor.causes import answers_cut, short_answers, steps_too_small
from truing.doctor.causes.example import example_history, example_log, example_sample, falling, rising
from truing.doctor.causes.explain import why
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.rules import RULES
from truing.doctor.verdict import Claim, Finding, Verdict

STEPS = 20


def level(value):
    return [value] * STEPS


def noisy(*levels):
    """Levels one after the other, with a spread that is the same in each run of the tests."""
    each = STEPS // len(levels)
    return [x + 0.02 * ((-1) ** i) * (1 + i % 3) for x in levels for i in range(each)]


def shares(equal, right, wrong):
    return {
        "group/zero_variance_share": level(equal),
        "group/all_right_share": level(right),
        "group/all_wrong_share": level(wrong),
    }


UNSTEADY = [0.65, 0.38, 0.77, 0.60, 0.58, 0.50, 0.52, 0.38]


@dataclass
class Shape:
    """Numbers of a stage, and what may and may not be said of it."""

    numbers: dict[str, list[float]]
    says: set[str]  # found or open
    not_: set[str] = field(default_factory=set)  # neither found nor open
    label: str = "on_policy"
    recipe: dict[str, object] = field(default_factory=dict)
    samples: tuple = ()
    head: str = "the reward does not clearly go up"


HARD, SOLVED, DEAD = "the tasks are too hard", "the tasks are solved", "the reward pays no answer"
SMALL, LARGE = "optimizer steps are too small", "optimizer steps are too large"
CUT, IDLE = "answers are cut", "no token is trained"
NOTHING = {"tokens/trained": level(0.0), "advantage/max_abs": level(0.0)}
BY_GROUP = tuple(example_sample(i, reward=0.25 + 0.1 * (i // 4)) for i in range(32))

SHAPES = {
    "nothing is wrong, and it does not learn": Shape({}, {SMALL}, {HARD, SOLVED, LARGE}),
    "a fall is within the noise": Shape(
        {"reward/mean": UNSTEADY}, {"too few rollouts", SMALL}, {HARD, LARGE}
    ),
    "it learns": Shape(
        {"reward/mean": noisy(0.2, 0.4, 0.6, 0.8)}, set(), {SMALL, LARGE, HARD}, head="the reward goes up"
    ),
    "it learned all there is": Shape(
        {"reward/mean": noisy(0.3, 0.95, 0.95, 0.95)} | shares(0.95, 0.95, 0.0),
        {SOLVED},
        {SMALL},
        head="the reward goes up",
    ),
    "turns begin with forced tokens and are masked": Shape(
        NOTHING | {"masked/forced_action": level(1.0), "reward/mean": noisy(0.05)} | shares(0.9, 0.0, 0.9),
        {IDLE},
        {SMALL, HARD, "the evaluation is too small"},
    ),
    "every rollout is cut and masked": Shape(
        NOTHING
        | {"masked/cut": level(1.0), "truncated/share": level(1.0), "reward/mean": level(0.0)}
        | shares(1.0, 0.0, 1.0),
        {IDLE, CUT},
        {SMALL, HARD},
    ),
    "every rollout is cut and trained": Shape(
        {"truncated/share": level(1.0), "reward/mean": level(0.0), "grad/norm": level(0.0)}
        | shares(1.0, 0.0, 1.0),
        {CUT},
        {SMALL, HARD, "the gradient is 0"},
    ),
    "all wrong": Shape(
        {"reward/mean": level(0.0), "advantage/max_abs": level(0.0)} | shares(1.0, 0.0, 1.0),
        {DEAD, HARD},
        {SOLVED},
    ),
    "mostly wrong": Shape(
        {"reward/mean": noisy(0.06)} | shares(0.85, 0.0, 0.85), {HARD}, {SOLVED, SMALL, DEAD}
    ),
    "all right from the start": Shape(
        {"reward/mean": level(1.0)} | shares(1.0, 1.0, 0.0), {SOLVED}, {SMALL, HARD}
    ),
    "each rollout is paid its group's value": Shape(
        {"reward/mean": noisy(0.55)} | shares(1.0, 0.15, 0.05),
        {"the reward does not depend on the answer"},
        {SOLVED, HARD, SMALL},
        samples=BY_GROUP,
    ),
    "half the tasks are solved and half out of reach": Shape(
        {"reward/mean": noisy(0.5)} | shares(0.9, 0.45, 0.45),
        {"groups have equal rewards"},
        {SMALL, SOLVED, HARD},
    ),
    "a cap on the KL skips each step": Shape(
        {"kl_trained/k3": level(0.3)},
        {"optimizer steps are skipped"},
        {SMALL, HARD, SOLVED},
        label="held_back",
        recipe={"kl.cap": 0.1, "kl.coef": 0.01},
    ),
    "the rate is 0": Shape({"lr": level(0.0)}, {"the learning rate is 0"}, {SMALL}),
    "it is still warming up": Shape(
        {"lr": [1e-6 * (i + 1) for i in range(STEPS)]},
        {"the run ends in the warm-up"},
        {SMALL},
        recipe={"optimizer.warmup_steps": 500},
    ),
    "the gradient is 0 beside groups that differ": Shape(
        {"grad/norm": level(0.0)},
        {"the gradient is 0"},
        {SMALL},
        head="look at this first: the gradient norm",
    ),
    "it collapsed after it had learned": Shape(
        {"reward/mean": noisy(0.3, 0.8, 0.8, 0.0)}, {LARGE}, {SMALL}, head="the reward fell from 0.8"
    ),
    "the policy is certain": Shape(
        {"entropy/sampled": level(1e-4)}, {"the rollouts of a group are the same"}, {LARGE}
    ),
    "three steps": Shape(
        {"reward/mean": [0.5, 0.4, 0.5]}, {"too few rollouts to see a change"}, {SMALL, LARGE}
    ),
}


def history_of(shape):
    numbers = {"reward/mean": noisy(0.5)} | shape.numbers
    return example_history(numbers, shape.recipe, label=shape.label, samples=shape.samples)


@pytest.mark.parametrize("name", SHAPES)
def test_what_the_record_excludes_is_not_named(name):
    shape = SHAPES[name]
    history = history_of(shape)
    names = " | ".join(each.title for each in why(history) if each.state in ("found", "open"))
    assert next(history.outcome.lines()).startswith(shape.head)
    for part in shape.says:
        assert part in names
    for part in shape.not_:
        assert part not in names


@pytest.mark.parametrize("name", SHAPES)
def test_a_larger_rate_is_proposed_only_where_it_could_show_something(name):
    shape = SHAPES[name]
    proposed = {
        change
        for each in why(history_of(shape))
        if each.state in ("found", "open")
        for change in each.advice.changes
    }
    assert ("grpo.learning_rate=0.003" in proposed) is (SMALL in shape.says), proposed


def with_finding(code, verdict):
    diagnosis = Diagnosis([RULES[code]])
    diagnosis.add_recorded(Finding(code, RULES[code].name, "grpo", 3, Claim(verdict, "3 tokens differ")))
    return replace(example_history({"lr": 0.0}), diagnosis=diagnosis)


def test_a_proven_fault_is_the_only_cause_until_it_is_mended():
    first, *others = why(with_finding("MSK003", Verdict.PROVEN))
    assert (first.state, first.title) == ("found", "PROVEN MSK003 gradient-not-as-declared")
    assert [(each.state, each.title) for each in others] == [("cannot tell", "other causes")]


def test_a_proven_fault_of_reported_numbers_leaves_other_causes():
    answers = why(with_finding("RWD011", Verdict.PROVEN))
    assert {"PROVEN RWD011 mean-not-of-samples", "the learning rate is 0"} <= {
        each.title for each in answers if each.state == "found"
    }


def test_a_finding_that_a_cause_names_is_not_named_twice():
    titles = [each.title for each in why(with_finding("OPT005", Verdict.SUSPECT))]
    assert any("OPT005" in title for title in titles)  # the gradient is not 0 on record
    still = replace(with_finding("OPT005", Verdict.SUSPECT), steps=example_history({"grad/norm": 0.0}).steps)
    titles = [each.title for each in why(still)]
    assert "the gradient is 0" in titles
    assert not any("OPT005" in title for title in titles)


def test_a_statistic_alone_leaves_its_cause_open():
    answers = why(replace(with_finding("RAT002", Verdict.SUSPECT), steps=example_history().steps))
    (own,) = [each for each in answers if each.code == "RAT002"]
    assert (own.state, own.advice.text) == ("open", "truing explain RAT002")


def test_a_stage_that_is_not_at_its_end_is_to_go_on():
    numbers = {"reward/mean": [0.1, 0.9] * (STEPS // 2)}
    for steps, said in ((STEPS, "truing train"), (2 * STEPS, "let the stage go on")):
        answers = why(example_history(numbers, {"grpo.steps": steps}))
        (few,) = (each for each in answers if each.name == "too_few_rollouts")
        assert few.advice.text.startswith(said)


def test_the_limit_that_cuts_is_named():
    history = example_history({"truncated/share": 1.0, "ended/turns": 1.0, "ended/length": 0.0}, samples=())
    answer = answers_cut.CAUSE.answer(history)
    assert "episode.max_turns = 8" in answer.because
    assert answer.advice.changes == ("episode.max_turns=16",)


def test_groups_of_equal_rewards_say_nothing_of_length():
    rows = [example_sample(i, reward=1.0, tokens=5 + i % 4) for i in range(60)]
    rows += [example_sample(60 + i, reward=float(i > 0), tokens=9 - i) for i in range(4)]
    assert short_answers.CAUSE.answer(example_history(samples=rows)) is None


def test_a_rate_is_not_the_cause_where_a_clip_or_a_scale_holds_the_steps():
    for keys in ({"optimizer.max_grad_norm": 1e-9}, {"lora.rank": 4, "lora.alpha": 0.01}):
        history = example_history({"kl_all/k3": 1e-7}, keys)
        answer = steps_too_small.CAUSE.answer(history)
        assert answer.state == "found"
        assert not any("learning_rate" in change for change in answer.advice.changes)


def test_records_in_which_nothing_differs_are_judged():
    nothing = {"reward/mean": 0.0, "reward/std": 0.0, "advantage/mean_abs": 0.0, "entropy/sampled": 0.0}
    nothing |= {"kl_all/k2": 0.0, "length/mean": 0.0, "group/zero_variance_share": 1.0}
    stages = (
        {"stages": ["reinforce"], "reinforce.steps": 24, "reinforce.baseline": "none"},
        {"stages": ["ppo"], "ppo.steps": 24, "ppo.gamma": 0.5},
        {"kl.coef": 0.1, "entropy.coef": 0.1, "gates.overlong_tokens": 4},
    )
    for recipe in stages:
        stage = recipe.get("stages", ["grpo"])[0]
        answers = why(example_history(nothing, recipe, stage=stage, samples=()))
        assert not {"no_baseline", "kl_holds", "entropy_bonus", "penalty_outweighs"} & {
            each.name for each in answers if each.state == "found"
        }


def test_parts_that_begin_at_0_and_a_kl_that_begins_late_are_judged():
    late = [0.0] * 10 + [-0.3] * 14
    parts = {"reward/mean": rising(), "reward_part/exact": rising(), "reward_part/long": late}
    (answer,) = [each for each in why(example_log(parts)) if each.name == "part_falls"]
    assert "long falls" in answer.title
    unknown = [float("nan")] * 8 + [0.9] * 16
    assert why(example_log({"reward/mean": falling(), "kl/any": unknown}))
    assert [e.state for e in why(example_log({"kl/any": -0.2})) if e.name == "steps_too_small"] == [
        "ruled out"
    ]
