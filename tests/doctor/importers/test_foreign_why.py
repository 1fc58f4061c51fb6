"""`truing why LOG`: what a log tells of its reward, and what it excludes."""

import json
import math
import random

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

TOOLS = {"reward": flat, "tools/failure_frequency": constant(0.96), "tools/call_frequency": constant(1.9)}
COLD = {"reward": flat, "entropy": constant(0.011), "frac_reward_zero_std": constant(0.91)}
SCALE = {
    "reward": lambda t, r: -300 + 225 * t + r.gauss(0, 9),
    "rewards/long/mean": lambda t, r: -300 + 225 * t + r.gauss(0, 9),
    "rewards/long/std": constant(190.0),
    "rewards/exact/mean": lambda t, r: 0.42 + r.gauss(0, 0.02),
    "rewards/exact/std": constant(0.49),
}

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
    "tools": (TOOLS, "train: the reward does not", {"tool calls fail"}, {SMALL, LARGE}),
    "cold": (
        COLD,
        "train: the reward does not",
        {"the rollouts of a group are the same"},
        {"groups have equal rewards", SMALL},
    ),
    "scale": (SCALE, "train: the reward goes up", {"long outweighs exact"}, {LARGE}),
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
    assert output["reward"]["learns"] is (name in ("learns", "scale"))


def verl(path, count=60, **series):
    """A log of verl in JSON lines, with other numbers; functions of (share of the run, rng)."""
    rng = random.Random(0)
    usual = {
        "critic/score/mean": flat,
        "critic/score/max": constant(1.0),
        "critic/score/min": constant(0.0),
        "critic/advantages/max": constant(1.5),
        "critic/advantages/min": constant(-1.5),
        "actor/grad_norm": constant(0.3),
        "actor/lr": constant(1e-6),
        "actor/ppo_kl": lambda t, r: 1e-4 * r.gauss(0, 1),
        "response_length/mean": constant(180.0),
        "response_length/clip_ratio": constant(0.01),
    }
    shown = usual | {name.replace("__", "/"): make for name, make in series.items()}
    rows = [{name: make(i / count, rng) for name, make in shown.items()} for i in range(count)]
    return json_lines(path / "verl.jsonl", [{"step": i + 1, "data": row} for i, row in enumerate(rows)])


OF_VERL = {
    "rollouts are aborted": {"response__aborted_ratio": constant(0.7)},
    "prompts are cut": {"prompt_length__clip_ratio": constant(0.8)},
    "every advantage is 0": {
        "critic__advantages__max": constant(0.0),
        "critic__advantages__min": constant(0.0),
        "actor__ppo_kl": constant(0.0),
    },
    "the training tasks are memorised": {
        "critic__score__mean": lambda t, r: 0.35 + 0.5 * t + r.gauss(0, 0.02),
        "val-core__own__acc__mean@1": lambda t, r: 0.4 - 0.1 * t + r.gauss(0, 0.005),
        "training__epoch": lambda t, r: float(int(40 * t)),
    },
    "optimizer steps are too large, or too many": {
        "critic__score__mean": lambda t, r: 0.5 - 0.3 * t + r.gauss(0, 0.01),
        "actor__ppo_kl": constant(0.2),
        "actor__pg_clipfrac": constant(0.4),
    },
}


@pytest.mark.parametrize("title", OF_VERL)
def test_the_first_cause_is_the_one_that_a_column_tells(tmp_path, title):
    causes = json.loads(truing("why", verl(tmp_path, **OF_VERL[title]), "--json").out)["causes"]
    assert causes[0]["title"].startswith(title)
    assert causes[0]["state"] in ("found", "open")


def test_the_first_test_of_a_nan_is_where_it_came_from(tmp_path):
    nan = {"actor__grad_norm": lambda t, r: math.nan if t > 0.5 else 0.3}
    falls = {"critic__score__mean": lambda t, r: (0.5 if t <= 0.5 else 0.0) + r.gauss(0, 0.01)}
    outcome = truing("why", verl(tmp_path, **nan, **falls))
    assert "first test: look at the first such step" in outcome.out
    assert "learning rate\n" not in outcome.out


def test_a_tiny_rate_is_tested_at_the_usual_one(tmp_path):
    outcome = truing("why", verl(tmp_path, actor__lr=constant(1e-9)))
    assert "first test: train again at a learning rate of 1e-06" in outcome.out


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
