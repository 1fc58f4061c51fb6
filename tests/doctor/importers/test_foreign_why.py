"""`truing why LOG`: what a log tells of its reward, and what it excludes."""

import json

import pytest
from command import truing
from foreign import constant, flat, healthy, json_lines, trainer_state

LEARNS = {}
FELL = {"reward": lambda t, r: (0.8 if t < 0.6 else 0.0) + r.gauss(0, 0.03)}
CUT_SINCE = FELL | {
    "completions/clipped_ratio": lambda t, r: 0.02 if t < 0.6 else 0.97,
    "frac_reward_zero_std": lambda t, r: 0.3 if t < 0.6 else 0.98,
}
STANDS = {"reward": flat}
TIED = {"reward": flat, "frac_reward_zero_std": constant(1.0)}
CUT = {"reward": flat, "completions/clipped_ratio": constant(0.9)}
STILL = {"reward": flat, "learning_rate": constant(0.0)}

SMALL, LARGE = "optimizer steps are too small", "optimizer steps are too large"

SHAPES = {
    "learns": (
        LEARNS,
        "train: the reward goes up: 0.3",
        set(),
        {SMALL, "groups have equal rewards"},
    ),
    "fell": (FELL, "train: the reward fell from 0.8", {LARGE}, {SMALL}),
    "cut since it fell": (
        CUT_SINCE,
        "train: the reward fell from 0.8",
        {LARGE},
        {"answers are cut", "groups have equal rewards"},
    ),
    "stands": (
        STANDS,
        "train: the reward does not clearly go up",
        {SMALL},
        {"answers are cut"},
    ),
    "tied": (TIED, "train: the reward does not", {"groups have equal rewards"}, {SMALL}),
    "cut": (CUT, "train: the reward does not", {"answers are cut"}, set()),
    "rate 0": (STILL, "train: the reward does not", {"the learning rate is 0"}, {SMALL}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_log_is_explained_and_what_it_excludes_is_not_named(tmp_path, name):
    series, head, says, excluded = SHAPES[name]
    outcome = truing("why", trainer_state(tmp_path, healthy(0, **series)))
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith(head)
    output = json.loads(truing("why", tmp_path, "--json").out)
    named = {each["title"] for each in output["causes"] if each["state"] in ("found", "open")}
    assert says <= named
    assert not named & excluded
    assert output["reward"]["learns"] is (name == "learns")


def test_a_log_without_a_reward_and_a_key_are_refused(tmp_path):
    path = json_lines(tmp_path / "a.jsonl", [{"step": i, "loss": 1.0, "grad_norm": 1.0} for i in range(9)])
    assert "has no reward" in truing("why", path).err
    assert "takes no settings" in truing("why", path, "lr=1").err


def test_steps_are_reported_by_the_numbers_of_the_log_and_the_rate_by_its_peak(tmp_path):
    rows = [
        {"step": 5 * i, "reward": (0.8 if i < 25 else 0.0) + 0.01 * (i % 3), "learning_rate": 1e-5 * (41 - i)}
        for i in range(1, 41)
    ]
    outcome = truing("why", json_lines(tmp_path / "log.jsonl", rows))
    assert "it broke at step 125" in outcome.out
    assert "step 25" not in outcome.out
    assert "learning rate 0.0004; " in outcome.out
