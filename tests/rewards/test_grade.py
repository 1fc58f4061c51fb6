import sys
import traceback
from dataclasses import replace

import numpy as np
import pytest
import torch

from truing.errors import NoReward, RewardError
from truing.rewards import NotApplicable, PerTurn, grade, prepare
from truing.types.rollout import Rollout, Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status

TASK = Task("t-17", "test", ({"role": "user", "content": "2 + 2?"},), answer="4")


def rollout_of(text):
    return Rollout("r", "g", TASK, (), text, Status.DONE, SamplingParams())


def right(rollout, task):
    return float(rollout.text == task.answer)


def length(rollout, task):
    return len(rollout.text)


def test_the_total_is_the_weighted_sum_and_parts_are_not_weighted():
    total, parts, _ = grade(
        rollout_of("4"), {"right": (right, 2.0), "length": (length, -0.5), "seen": (length, 0)}
    )
    assert total == 2.0 * 1.0 - 0.5 * 1
    assert parts == {"right": 1.0, "length": 1.0, "seen": 1.0}
    assert all(type(value) is float for value in parts.values())


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.float64(0.5), np.int64(2)])
def test_plain_and_numpy_numbers_are_rewards(value):
    graded = grade(rollout_of("4"), {"r": (lambda rollout, task: value, 1.0)})
    assert graded == (float(value), {"r": float(value)}, ())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "returned None"),
        (True, "returned a bool"),
        (np.bool_(True), "returned a bool"),
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
        (-float("inf"), "not finite"),
        (10**400, "not finite"),
        ([1.0, 0.0], "returned 2 values"),
        ((), "returned 0 values"),
        ("1.0", "returned a str"),
        (torch.tensor(1.0), "returned a Tensor"),
        (np.ones(3), "returned a ndarray"),
        (1j, "returned a complex"),
    ],
)
def test_a_result_that_is_no_finite_number_is_an_error_that_names_task_and_response(value, message):
    def careless(rollout, task):
        return value

    with pytest.raises(RewardError, match=message) as caught:
        grade(rollout_of("four\x1b[2J"), {"mine": (careless, 1.0)})
    text = str(caught.value)
    assert "'mine'" in text
    assert "careless" in text
    assert "'t-17'" in text
    assert r"four\x1b[2J" in text  # control characters are shown, not sent to the terminal


def test_a_function_that_raises_is_an_error_with_its_own_traceback():
    def broken(rollout, task):
        return 1 / len(rollout.text)

    with pytest.raises(RewardError, match=r"'mine'.*broken.*'t-17'.*ZeroDivisionError") as caught:
        grade(rollout_of(""), {"right": (right, 1.0), "mine": (broken, 1.0)})
    cause = caught.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert "1 / len(rollout.text)" in "".join(traceback.format_exception(cause))


def test_a_long_response_is_cut_in_the_message_and_nowhere_else():
    seen = []

    def broken(rollout, task):
        seen.append(len(rollout.text))
        raise ValueError("no")

    with pytest.raises(RewardError) as caught:
        grade(rollout_of("x" * 10_000), {"mine": (broken, 1.0)})
    assert seen == [10_000]
    assert len(str(caught.value)) < 1000


def test_an_interrupt_is_not_a_reward_error():
    def stop(rollout, task):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade(rollout_of(""), {"stop": (stop, 1.0)})


def test_no_functions_and_infinite_sums_are_errors():
    with pytest.raises(RewardError, match="no reward function"):
        grade(rollout_of("4"), {})
    with pytest.raises(RewardError, match="weighted sum"):
        grade(rollout_of("4"), {"right": (right, float("nan"))})
    with pytest.raises(RewardError, match="weighted sum"):
        grade(rollout_of("4"), {"big": (lambda r, t: 1e308, 1e10)})
    with pytest.raises(RewardError, match="too large"):  # its square is infinite in float32
        grade(rollout_of("4"), {"big": (lambda r, t: 1e308, 1.0)})
    assert grade(rollout_of("4"), {"big": (lambda r, t: 1e18, 1.0)}).reward == 1e18


@pytest.mark.parametrize(("scores", "weight"), [([1e308, 1e308], 0.0), ([1e308, -1e308], 10.0)])
def test_sums_over_turns_are_finite(scores, weight):
    with pytest.raises(RewardError, match="not finite"):
        grade(turns(2), {"big": (lambda rollout, task: PerTurn(scores), weight)})


def turns(count):
    """A rollout of ``count`` turns, without content."""
    return replace(rollout_of("4"), turns=(None,) * count)


def test_a_function_may_judge_each_turn():
    rewards = {
        "tidy": (lambda rollout, task: PerTurn([1, 0, 0.5]), 0.5),
        "short": (lambda rollout, task: PerTurn([0, 0, 1]), -1.0),
        "right": (right, 2.0),
    }
    reward, parts, turn_rewards = grade(turns(3), rewards)
    assert parts == {"tidy": 1.5, "short": 1.0, "right": 1.0}
    assert reward == 0.5 * 1.5 - 1.0 + 2.0
    assert turn_rewards == (0.5, 0.0, -0.75)


@pytest.mark.parametrize(
    ("scores", "message"),
    [([1.0], "returned 1 scores"), ([1.0, True], "a bool"), ([1.0, float("nan")], "not finite")],
)
def test_scores_of_turns_are_checked_each(scores, message):
    with pytest.raises(RewardError, match=message):
        grade(turns(2), {"mine": (lambda rollout, task: PerTurn(scores), 1.0)})


@pytest.mark.parametrize("scores", [None, 1.0, {1.0, 0.5}, (x for x in (1.0, 0.5))])
def test_scores_of_turns_have_an_order(scores):
    with pytest.raises(RewardError, match=r"task 't-17' raised RewardError: truing\.PerTurn needs"):
        grade(turns(2), {"mine": (lambda rollout, task: PerTurn(scores), 1.0)})


def test_a_function_that_exits_is_an_error_and_ends_no_training():
    def leave(rollout, task):
        sys.exit(0)

    with pytest.raises(RewardError, match="SystemExit"):
        grade(rollout_of("4"), {"leave": (leave, 1.0)})


def test_a_function_that_does_not_apply_has_no_part():
    rewards = {"right": (right, 2.0), "other": (lambda rollout, task: NotApplicable(), 5.0)}
    assert grade(rollout_of("4"), rewards)[:2] == (2.0, {"right": 1.0})
    with pytest.raises(NoReward, match="no reward function applies to task 't-17'"):
        grade(rollout_of("4"), {"other": rewards["other"]})


def test_functions_that_judge_together_get_all_rollouts_once():
    class Together:
        def __init__(self):
            self.seen = []

        def prepare(self, rollouts):
            self.seen.append([rollout.text for rollout in rollouts])

    together = Together()

    def judged(rollout, task):
        return 0.0

    judged.prepare = together.prepare
    also = type("Also", (), {"prepare": together.prepare, "__call__": judged})()
    prepare({"a": (judged, 1.0), "b": (also, 1.0), "c": (right, 1.0)}, [rollout_of("x"), rollout_of("y")])
    assert together.seen == [["x", "y"]]


class Mute(Exception):
    """An error whose text cannot be had."""

    def __str__(self):
        raise ValueError("no text")


class Number(Exception):
    """An error whose text is a number."""

    def __str__(self):
        return 5


@pytest.mark.parametrize(
    "error",
    [BaseException("b"), GeneratorExit(), SystemExit(0), Mute(), Number()],
    ids=lambda each: each.__class__,
)
def test_whatever_a_function_raises_is_an_error_of_the_reward(error):
    def fail(rollout, task):
        raise error

    with pytest.raises(RewardError, match=f"raised {type(error).__name__}"):
        grade(rollout_of("4"), {"fail": (fail, 1.0)})


def test_ctrl_c_in_a_function_is_ctrl_c():
    def interrupted(rollout, task):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade(rollout_of("4"), {"interrupted": (interrupted, 1.0)})
