"""`truing why` over records of many shapes: what each excludes is not named, and no test can show nothing."""

from dataclasses import dataclass, field, replace

import pytest
from runs import MINI

import truing as package
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.hypotheses.explain import why
from truing.doctor.hypotheses.run_history import RunHistory

STEPS = 20


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The story of a short run: all others are made of its rows."""
    out = tmp_path_factory.mktemp("why") / "run"
    package.train(MINI, out=out, on_event=lambda *_: None)
    return RunHistory.from_run(out, Diagnosis(()))


def level(value):
    return [value] * STEPS


def noisy(*levels):
    """Levels one after the other, with a spread that is the same in each run of the tests."""
    each = STEPS // len(levels)
    return [x + 0.02 * ((-1) ** i) * (1 + i % 3) for x in levels for i in range(each)]


USUAL = {
    "reward/mean": noisy(0.5),
    "tokens/trained": level(100.0),
    "tokens/sampled": level(100.0),
    "grad/norm": level(1.0),
    "lr": level(1e-3),
    "group/zero_variance_share": level(0.2),
    "group/all_right_share": level(0.1),
    "group/all_wrong_share": level(0.1),
    "truncated/share": level(0.0),
    "advantage/max_abs": level(1.0),
    "entropy/sampled": level(0.7),
}


def shares(equal, right, wrong):
    return {
        "group/zero_variance_share": level(equal),
        "group/all_right_share": level(right),
        "group/all_wrong_share": level(wrong),
    }


@dataclass
class Shape:
    """Numbers of a stage, and what may and may not be said of it."""

    numbers: dict[str, list[float]]
    says: set[str]  # found or open
    not_: set[str] = field(default_factory=set)  # neither found nor open
    steps: int = STEPS
    held: int = 0  # last steps that were not made
    recipe: dict[str, object] = field(default_factory=dict)
    rewards: str = "as they were"  # of the rows: or one a group
    head: str = "the reward does not clearly go up"


HARD, EASY = "too hard", "too easy"
SMALL, LARGE = "optimizer steps are too small", "optimizer steps are too large"
NOTHING = {"tokens/trained": level(0.0), "advantage/max_abs": level(0.0)}

SHAPES = {
    "nothing is wrong, and it does not learn": Shape({}, {SMALL}, {HARD, EASY, LARGE}),
    "it learns": Shape(
        {"reward/mean": noisy(0.2, 0.4, 0.6, 0.8)}, set(), {SMALL, LARGE, HARD, EASY}, head="the run learns"
    ),
    "it learned all there is": Shape(
        {"reward/mean": noisy(0.3, 0.95, 0.95, 0.95)} | shares(0.95, 0.95, 0.0),
        {"the tasks are solved"},
        {EASY, SMALL},
        head="the run learns",
    ),
    "turns begin with forced tokens and are masked": Shape(
        NOTHING | {"masked/forced_action": level(1.0), "reward/mean": noisy(0.05)} | shares(0.9, 0.0, 0.9),
        {"no token is trained"},
        {SMALL, "the evaluation is too small", "supervised fine-tuning was too short"},
    ),
    "every attempt is cut and masked": Shape(
        NOTHING
        | {"masked/cut": level(1.0), "truncated/share": level(1.0), "reward/mean": level(0.0)}
        | shares(1.0, 0.0, 1.0),
        {"no token is trained", "answers are cut"},
        {SMALL, HARD},
    ),
    "every attempt is cut and trained": Shape(
        {"truncated/share": level(1.0), "reward/mean": level(0.0), "grad/norm": level(0.0)}
        | shares(1.0, 0.0, 1.0),
        {"answers are cut"},
        {SMALL, HARD, "the gradient is 0"},
    ),
    "all wrong": Shape(
        {"reward/mean": level(0.0)} | shares(1.0, 0.0, 1.0), {"the verifier is dead"}, {SMALL, EASY}
    ),
    "mostly wrong": Shape(
        {"reward/mean": noisy(0.06)} | shares(0.85, 0.0, 0.85), {HARD, SMALL}, {EASY, "the verifier is dead"}
    ),
    "all right from the start": Shape(
        {"reward/mean": level(1.0)} | shares(1.0, 1.0, 0.0), {EASY}, {SMALL, HARD}
    ),
    "each attempt is paid its group's value": Shape(
        {"reward/mean": noisy(0.55)} | shares(1.0, 0.15, 0.05),
        {"rollouts of a group have equal rewards for different answers"},
        {EASY, HARD, SMALL},
        rewards="one a group",
    ),
    "half the tasks are solved and half out of reach": Shape(
        {"reward/mean": noisy(0.5)} | shares(0.9, 0.45, 0.45),
        {"some tasks are too easy", SMALL},
        {"signal: tasks are"},
    ),
    "a cap on the KL holds every update back": Shape(
        {"kl_trained/k3": level(0.3)}, {"optimizer steps are skipped"}, {SMALL, HARD, EASY}, held=18,
        recipe={"cap": 0.1},
    ),
    "the rate is 0": Shape({"lr": level(0.0)}, {"the learning rate is 0"}, {SMALL}),
    "it is still warming up": Shape(
        {"lr": [1e-6 * i for i in range(STEPS)]}, {"still warming up"}, {SMALL}, recipe={"warmup": 500}
    ),
    "the gradient is 0 beside groups that differ": Shape(
        {"grad/norm": level(0.0)}, {"the gradient is 0"}, {SMALL}
    ),
    "it collapsed after it had learned": Shape(
        {"reward/mean": noisy(0.3, 0.8, 0.8, 0.0)}, {LARGE}, {SMALL}, head="the reward fell: from 0.8"
    ),
    "the policy is certain": Shape({"entropy/sampled": level(1e-4)}, set(), {SMALL}),
    "three updates": Shape({}, {"too few steps to tell"}, {SMALL, LARGE}, steps=3),
}  # fmt: skip


def history_of(real, shape):
    template = real.steps[-1]
    numbers = USUAL | shape.numbers
    steps = [
        replace(
            template,
            step=i,
            metrics={name: values[i] for name, values in numbers.items()},
            loss_label="held_back" if i >= shape.steps - shape.held else "on_policy",
        )
        for i in range(shape.steps)
    ]
    samples = list(real.samples)
    if shape.rewards == "one a group":
        places = {sample.group_id: 0.25 + 0.1 * (i % 5) for i, sample in enumerate(samples)}
        samples = [
            replace(sample, reward=places[sample.group_id], text=str(i)) for i, sample in enumerate(samples)
        ]
    recipe = real.recipe
    if cap := shape.recipe.get("cap"):
        recipe = recipe.model_copy(update={"kl": recipe.kl.model_copy(update={"cap": cap})})
    if warmup := shape.recipe.get("warmup"):
        changed = recipe.optimizer.model_copy(update={"warmup_steps": warmup})
        recipe = recipe.model_copy(update={"optimizer": changed})
    return replace(real, steps=steps, recorded=steps, samples=samples, recipe=recipe)


@pytest.mark.parametrize("name", SHAPES)
def test_what_the_record_excludes_is_not_named(real, name):
    shape = SHAPES[name]
    history = history_of(real, shape)
    remaining = [each for each in why(history) if each.state != "ruled out"]
    names = " | ".join(each.name for each in remaining)
    assert history.reward_trend.summary().startswith(shape.head)
    for part in shape.says:
        assert part in names
    for part in shape.not_:
        assert part not in names


@pytest.mark.parametrize("name", SHAPES)
def test_a_larger_rate_is_proposed_only_where_it_could_show_something(real, name):
    shape = SHAPES[name]
    proposed = {
        change
        for each in why(history_of(real, shape))
        if each.state != "ruled out"
        for change in each.changes
    }
    larger = {change for change in proposed if change == "grpo.learning_rate=0.01"}
    assert bool(larger) is (SMALL in shape.says), proposed


def test_a_run_that_learns_says_so_with_the_gain_and_its_interval(real):
    result = history_of(real, SHAPES["it learns"]).reward_trend.summary()
    assert result.startswith("the run learns: 0.2")
    assert "+0.5" in result or "+0.6" in result
    assert "[+0.4" in result or "[+0.5" in result


def test_a_cut_attempt_says_nothing_of_the_taste_of_the_reward(real):
    samples = [
        replace(sample, truncated=i % 2 == 0, reward=float(i % 2))
        for i, sample in enumerate(real.samples * 4)
    ]
    names = [
        each.name
        for each in why(replace(history_of(real, SHAPES["it learns"]), samples=samples))
        if each.state == "open"
    ]
    assert "the reward favours short answers" not in names


def test_what_came_with_the_fall_of_the_reward_is_no_cause_of_it(real):
    fell = {
        "reward/mean": noisy(0.8, 0.0),
        "truncated/share": noisy(0.05, 0.95),
        **{name: level(0.2)[:10] + level(0.9)[:10] for name in shares(1, 1, 1)},
    }
    story = replace(real, steps=[replace(real.steps[0], step=i, metrics=_at(fell, i)) for i in range(STEPS)])
    states = {each.name.partition(":")[0]: each.state for each in why(story)}
    assert states["answers are cut"] == "ruled out"
    assert states["groups have no signal"] == "ruled out"


def _at(series, i):
    return {name: values[i] for name, values in (USUAL | series).items()}
