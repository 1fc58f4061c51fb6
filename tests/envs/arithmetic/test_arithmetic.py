import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.envs import checked_tasks, make_env
from truing.envs.arithmetic.env import partial
from truing.envs.arithmetic.questions import KINDS, Draws
from truing.errors import DataError
from truing.rewards import grade

TINY = ("first-3", "max")


def numbers(text):
    return [int(number) for number in re.findall(r"\d+", text)]


def solve(kind, asked):
    """The answer, found from the question's text alone and in another way than the maker's."""
    name = kind.partition("-")[0]
    result = numbers(asked)
    by_numbers = {
        "add": lambda: str(sum(result)),
        "sum": lambda: str(sum(result)),
        "subtract": lambda: str(result[0] - result[1]),
        "missing": lambda: str(result[1] - result[0]),
        "largest": lambda: str(sorted(result)[-1]),
        "sort": lambda: " ".join(sorted((str(n) for n in result), key=lambda n: (len(n), n))),
        "reverse": lambda: " ".join(re.findall(r"\d", asked)[::-1]),
        "max": lambda: str(result[0] if result[0] > result[1] else result[1]),
    }
    by_letters = {
        "count": lambda: str(len(re.findall(rf"\b{asked.split()[4]}\b", asked)) - 1),
        "last": lambda: asked[-2],
        "first": lambda: asked[0],
    }
    return (by_numbers | by_letters)[name]()


@pytest.mark.parametrize("kind", KINDS)
def test_every_question_has_the_right_answer(kind):
    for i in range(200):
        asked, answer = KINDS[kind](Draws("test", kind, i))
        assert answer == solve(kind, asked), asked


def test_the_questions_are_pinned():
    # another draw would change what every recorded run was trained and evaluated on
    made = {kind: KINDS[kind](Draws(0, kind, 0)) for kind in KINDS}
    assert made == {
        "add-1": ("What is 6 + 1?", "7"),
        "add-2": ("What is 78 + 17?", "95"),
        "add-3": ("What is 689 + 320?", "1009"),
        "sum-3": ("What is 8 + 6 + 7?", "21"),
        "subtract-2": ("What is 99 - 98?", "1"),
        "missing-1": ("0 + x = 4. What is x?", "4"),
        "missing-2": ("69 + x = 112. What is x?", "43"),
        "largest-3": ("Which is the largest: 91 99 11?", "99"),
        "largest-5": ("Which is the largest: 34 88 99 25 40?", "99"),
        "sort-3": ("Sort from small to large: 13 97 46", "13 46 97"),
        "sort-4": ("Sort from small to large: 73 59 90 24", "24 59 73 90"),
        "count-5": ("How many times is j in j p j j p?", "3"),
        "last-5": ("What is the last letter of nqtxy?", "y"),
        "reverse-4": ("Reverse the list: 2 3 5 4", "4 5 3 2"),
        "reverse-6": ("Reverse the list: 3 8 0 8 8 2", "2 8 8 0 8 3"),
        "first-3": ("333>", "3"),
        "max": ("max 0 2=", "2"),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_gold_scores_full_and_empty_or_foreign_answers_do_not(kind, rollout_of):
    env = make_env("arithmetic", {"kinds": [kind], "train": 15, "eval": 5, "partial_weight": 0.5})
    tasks = env.tasks("train")
    for task, other in zip(tasks, [*tasks[1:], tasks[0]], strict=True):
        assert grade(rollout_of(task, task.demonstration), env.rewards)[:2] == (
            1.5,
            {"exact": 1.0, "partial": 1.0},
        )
        assert grade(rollout_of(task, ""), env.rewards)[0] == 0.0
        if other.answer != task.answer:
            assert grade(rollout_of(task, other.answer), env.rewards)[0] < 0.5


def test_splits_share_nothing_and_no_question_comes_twice():
    env = make_env("arithmetic", {"kinds": list(KINDS), "train": 360, "eval": 108})
    splits = checked_tasks(env)
    assert {split: len(tasks) for split, tasks in splits.items()} == {"train": 360, "eval": 108}
    asked = [(task.family, task.messages[-1]["content"]) for tasks in splits.values() for task in tasks]
    assert len(set(asked)) == len(asked)


def test_a_task_is_the_same_whatever_the_count_and_kinds_take_turns():
    few = make_env("arithmetic", {"kinds": ["add-2", "max"], "train": 5, "eval": 2})
    many = make_env("arithmetic", {"kinds": ["add-2", "max"], "train": 50, "eval": 20})
    for split in ("train", "eval"):
        assert many.tasks(split)[: len(few.tasks(split))] == few.tasks(split)
    families = [task.family for task in few.tasks("train")]
    assert families == [f"arithmetic/{kind}" for kind in ("add-2", "max", "add-2", "max", "add-2")]


def test_another_seed_asks_other_questions():
    first, second = (
        {t.messages[-1]["content"] for t in make_env("arithmetic", {"seed": seed}).tasks("eval")}
        for seed in (0, 1)
    )
    assert len(first & second) < len(first) / 4


def test_the_system_message_can_be_left_out():
    roles = [
        [message["role"] for message in make_env("arithmetic", {"system": system}).tasks("eval")[0].messages]
        for system in ("Be brief.", "")
    ]
    assert roles == [["system", "user"], ["user"]]


@pytest.mark.parametrize("kind", TINY)
def test_the_kinds_for_tiny_are_short(kind):
    for i in range(100):
        asked, answer = KINDS[kind](Draws("short", i))
        assert len(asked.encode()) + len(answer.encode()) <= 16


def test_more_questions_than_there_are_is_an_error():
    with pytest.raises(
        DataError, match=r"not enough different 'max' questions for train[\s\S]*got: \d+ questions"
    ):
        make_env("arithmetic", {"kinds": ["max"], "train": 101, "eval": 1})


@pytest.mark.parametrize(
    ("response", "wanted"),
    [
        ("12 34", 1.0),
        (" 12 34\n", 1.0),
        ("12 43", 3 / 5),  # "12 " is right, 4 and 3 have changed places
        ("1", 1 / 5),
        ("12 34 and more", 5 / 14),  # what is said too much counts against it
        ("34 12", 1 / 5),  # the blank
        ("", 0.0),
    ],
)
def test_partial_by_hand(response, wanted, rollout_of):
    env = make_env("arithmetic", {"kinds": ["sort-3"], "train": 1, "eval": 1})
    task = env.tasks("train")[0]
    task = type(task)(task.task_id, task.family, task.messages, answer="12 34")
    assert partial(rollout_of(task, response), task) == pytest.approx(wanted, abs=1e-12)


@given(st.integers(-50, 50), st.integers(0, 50), st.text(max_size=5))
def test_draws_stay_within_their_bounds(low, span, key):
    draws = Draws(key)
    assert all(low <= draws.between(low, low + span) <= low + span for _ in range(5))
    assert Draws(key).word(4) == Draws(key).word(4)
    result = draws.distinct(10, lambda: draws.number(1))
    assert sorted(result) == list(range(10))
