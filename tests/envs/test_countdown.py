import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.envs import checked_tasks, make_env
from truing.envs.countdown import MAX_EXPRESSION_CHARS, value_of
from truing.errors import DataError
from truing.rewards import grade


@pytest.fixture(scope="module")
def env():
    return make_env("countdown", {"train": 200, "eval": 50})


def test_the_puzzles_are_pinned():
    env = make_env("countdown", {"train": 2, "eval": 1})
    asked = [task.messages[-1]["content"] for split in ("train", "eval") for task in env.tasks(split)]
    assert asked == ["Make 62 from 6 17 19 20.", "Make 63 from 1 1 7 10.", "Make 53 from 5 18 20 20."]


def test_every_demonstration_scores_full_and_other_answers_do_not(env, rollout_of):
    splits = checked_tasks(env)
    for task in (*splits["train"], *splits["eval"]):
        assert grade(rollout_of(task, task.demonstration), env.rewards)[:2] == (
            1.0,
            {"success": 1.0, "format": 1.0},
        )
        assert grade(rollout_of(task, str(task.answer.target)), env.rewards)[0] == 0
        assert grade(rollout_of(task, ""), env.rewards)[:2] == (0.0, {"success": 0.0, "format": 0.0})
        assert task.answer.target not in task.answer.numbers


def test_more_tasks_leave_the_first_where_they_were(env):
    few = make_env("countdown", {"train": 20, "eval": 5})
    assert few.tasks("train") == env.tasks("train")[:20]
    assert few.tasks("eval") == env.tasks("eval")[:5]


def test_another_seed_makes_other_puzzles(env):
    other = make_env("countdown", {"train": 200, "eval": 50, "seed": 1})
    asked = [{task.messages[-1]["content"] for task in each.tasks("train")} for each in (env, other)]
    assert len(asked[0] & asked[1]) < 5


def test_thinking_before_a_tag(rollout_of):
    env = make_env("countdown", {"train": 1, "eval": 1, "answer_format": "tag"})
    (task,) = env.tasks("train")
    assert task.demonstration.startswith("<answer>")
    assert grade(rollout_of(task, f"Let me try.\n{task.demonstration}"), env.rewards)[0] == 1


def test_more_puzzles_than_there_are_is_an_error():
    with pytest.raises(DataError, match="not enough different 'countdown' questions for train"):
        make_env("countdown", {"numbers": 2, "largest": 3, "largest_target": 5})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(3 + 5) / 2", 4),
        ("2 * (3 + 5)", 16),
        ("3 - 5", -2),
        ("2 / 3 * 5", Fraction(10, 3)),
        ("3×5 − 2", 13),
        ("3 ÷ 2", Fraction(3, 2)),
        ("5", 5),
    ],
)
def test_values_are_exact(expression, value):
    assert value_of(expression, [2, 3, 5]) == value


@pytest.mark.parametrize(
    "expression",
    [
        "3 + 3",  # used twice
        "3 + 4",  # not given
        "2 ** 3",
        "5 // 2",
        "-(3)",
        "+3",
        "23",
        "3.0",
        "0x3",
        "3 + 5 = 8",
        "3 +",
        "()",
        "(2, 3)",
        "02 + 3",
        "5(3)",
        "__import__('os')",
        "",
        " ",
        "٣ + 2",  # a digit of another script
        "(" * 150 + "3" + ")" * 150,
        "(" * 95 + "3" + ")" * 95 + "+",
        "3" * (MAX_EXPRESSION_CHARS + 1),
    ],
)
def test_what_is_no_expression_of_the_numbers_has_no_value(expression):
    assert value_of(expression, [2, 3, 5]) is None


def test_a_division_by_zero_on_the_way_has_no_value():
    assert value_of("4 + 2 / (5 - 3 - 2)", [2, 2, 3, 4, 5]) is None


@given(st.text(alphabet="0123456789+-*/() \n=x", max_size=60))
def test_any_text_is_judged(text):
    value = value_of(text, [1, 2, 3, 4])
    assert value is None or isinstance(value, Fraction)


@given(
    st.recursive(
        st.integers(1, 99).map(str),
        lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        max_leaves=6,
    )
)
def test_the_value_is_pythons_own(expression):
    wrapped = re.sub(r"\d+", r"Fraction(\g<0>)", expression)
    try:
        expected = eval(wrapped, {"Fraction": Fraction})
    except ZeroDivisionError:
        expected = None
    assert value_of(expression, [int(number) for number in re.findall(r"\d+", expression)]) == expected
