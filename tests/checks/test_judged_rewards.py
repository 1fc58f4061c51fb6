"""Which part of a shaped reward a demonstration must earn."""

import pytest
from shop import PRICES, Quiz, exact

from truing.checks.rewards import check_shaping
from truing.errors import RecipeError

TASKS = len(PRICES)
CHECK = "the demonstration scores full"


def brief(rollout, task):
    return 1 / (1 + len(rollout.text))


def dead(rollout, task):
    return 0.0


def penalty(rollout, task):
    return -float(rollout.text == "")


def quiz(**rewards):
    env = Quiz()
    env.rewards = rewards
    return env


SHAPED = {
    "a bonus beside it": {"exact": (exact, 1.0), "brief": (brief, 0.1)},
    "two bonuses": {"brief": (brief, 0.2), "exact": (exact, 0.5), "long": (dead, 0.1)},
    "a bonus of its weight": {"exact": (exact, 1.0), "brief": (brief, 1.0)},
    "a penalty of its weight": {"exact": (exact, 1.0), "penalty": (penalty, 1.0)},
    "a negative weight": {"exact": (exact, 1.0), "length": (brief, -0.5)},
}


@pytest.mark.parametrize("rewards", SHAPED.values(), ids=SHAPED)
def test_a_demonstration_need_not_earn_what_only_shapes_the_reward(rewards, report):
    result = report(quiz(**rewards))
    assert result.findings == []
    assert result[CHECK].count == TASKS


@pytest.mark.parametrize("case", ["a bonus beside it", "two bonuses", "a negative weight"])
def test_beside_a_bonus_a_reward_for_silence_is_found(case, report):
    result = report(quiz(**SHAPED[case] | {"exact": (lambda *_: 1.0, 1.0)}))
    assert len(result["saying nothing does not score full"].findings) == TASKS


def test_a_part_with_the_largest_weight_may_be_declared_as_shaping(report):
    env = quiz(exact=(exact, 1.0), brief=(brief, 1.2))
    assert len(report(env)[CHECK].findings) == TASKS
    assert 'doctor.shaping = ["brief"]' in report(env)[CHECK].findings[0].remedy
    assert report(env, shaping=["brief"]).findings == []
    result = report(env, shaping=["brief", "exact"])[CHECK]
    assert (result.count, result.findings) == (0, ())
    assert result.missing == ("parts of the reward: doctor.shaping names all that have a weight above 0",)


@pytest.mark.parametrize(
    "rewards",
    [{"exact": (dead, 1.0)}, {"exact": (dead, 1.0), "brief": (brief, 0.1)}],
    ids=["alone", "beside a bonus"],
)
def test_a_reward_of_which_demonstrations_earn_nothing_has_a_sentence_of_its_own(rewards, report):
    findings = report(quiz(**rewards))[CHECK].findings
    assert len(findings) == TASKS
    assert "earns nothing of exact, the part of the reward with the largest weight" in findings[0].what
    assert "does not get the full reward" not in findings[0].what


def test_a_dead_part_is_found_beside_a_live_one_of_its_weight(report):
    (finding,) = report(quiz(exact=(dead, 1.0), form=(lambda *_: 1.0, 1.0)))[CHECK].findings
    assert finding.what.startswith("no demonstration earns anything of exact")
    assert finding.where == "all tasks"


def test_the_note_says_what_demonstrations_earn_of_each_part(report):
    (note,) = report(quiz(exact=(exact, 1.0), none=(dead, 0.1)), shaping=["none"])[CHECK].notes
    assert note == "demonstrations earn, on average: exact 1 (weight 1), none 0 (weight 0.1, shaping)"


def test_a_part_that_the_reward_does_not_have_cannot_shape_it():
    with pytest.raises(RecipeError, match=r"(?s)doctor.shaping names 'breif'.*exact, brief.*'brief'"):
        check_shaping(["breif"], {"exact": (exact, 1.0), "brief": (brief, 0.1)})
