import pytest

from truing.envs import ENVS, Env, checked_tasks, make_env
from truing.envs.base import hash_fraction
from truing.errors import DataError, RecipeError
from truing.types.message import ToolSpec
from truing.types.rollout import Task


def task(task_id, content, *tools):
    specs = tuple(ToolSpec(name, "", {}) for name in tools)
    return Task(task_id, "test", ({"role": "user", "content": content},), tools=specs)


class Fixed:
    """An environment of given tasks."""

    notes = ()

    def __init__(self, train, evaluation):
        self.rewards = {}
        self.splits = {"train": train, "eval": evaluation}

    def tasks(self, split):
        return self.splits[split]


def test_checked_tasks_gives_both_splits_as_they_are():
    env = Fixed([task("a", "1?"), task("b", "2?")], [task("c", "3?")])
    assert isinstance(env, Env)
    assert checked_tasks(env) == env.splits


@pytest.mark.parametrize(
    ("train", "evaluation", "message"),
    [
        ([], [task("a", "1?")], "no train tasks"),
        ([task("a", "1?")], [], "no eval tasks"),
        ([task("a", "1?")], [task("a", "2?")], "two tasks have one id"),
        ([task("a", "1?"), task("a", "2?")], [task("b", "3?")], "two tasks have one id"),
        ([task("a", "1?", "add", "ask", "add")], [task("b", "2?")], "two tools of one name"),
        (
            [task("a", "1?"), task("b", "2?")],
            [task("c", "2?")],
            r"trained on and evaluated[\s\S]*b \(train\) and c \(eval\)",
        ),
    ],
)
def test_checked_tasks_refuses_what_leaks_or_is_empty(train, evaluation, message):
    with pytest.raises(DataError, match=message):
        checked_tasks(Fixed(train, evaluation))


def test_share_of_is_pinned_and_even():
    # pinned: another hash would move questions between the splits of existing runs
    assert hash_fraction("split", 0, "Who?") == pytest.approx(0.662626843856023, abs=1e-12)
    shares = [hash_fraction("even", i) for i in range(2000)]
    assert all(0 <= share < 1 for share in shares)
    assert sum(shares) / len(shares) == pytest.approx(0.5, abs=0.03)  # 4.6 standard errors


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("musiqe", {}, r"unknown environment 'musiqe'[\s\S]*did you mean 'musique'"),
        ("arithmetic", {"kind": ["add-2"]}, r"unknown recipe key 'env.kind'[\s\S]*did you mean env.kinds"),
        ("musique", {"dat": "x.jsonl"}, r"unknown recipe key 'env.dat'[\s\S]*did you mean env.data"),
        ("musique", {}, r"lacks 'env.data'"),
        ("arithmetic", {"train": 0}, r"'env.train' has an invalid value[\s\S]*got: 0"),
        ("arithmetic", {"partial_weight": float("nan")}, r"'env.partial_weight' has an invalid value"),
        ("arithmetic", {"kinds": []}, r"'env.kinds' has an invalid value"),
        ("arithmetic", {"kinds": ["ad-2"]}, r"unknown kind 'ad-2'[\s\S]*did you mean 'add-2'"),
        ("arithmetic", {"kinds": ["max", "max"]}, "each kind once"),
        ("musique", {"data": "x.jsonl", "paragraphs": "some"}, r"'env.paragraphs' has an invalid value"),
        ("musique", {"data": []}, r"'env.data"),
        ("musique", {"data": "x.jsonl", "eval_share": 1.0}, r"'env.eval_share' has an invalid value"),
    ],
)
def test_make_env_refuses_what_it_does_not_know(name, config, message):
    with pytest.raises(RecipeError, match=message):
        make_env(name, config)


def test_the_table_makes_environments():
    assert all(env.Config.model_fields for env in ENVS.values())
    env = make_env("arithmetic", {"kinds": ["max"], "train": 20, "eval": 10})
    assert isinstance(env, Env)
    assert len(checked_tasks(env)["train"]) == 20


@pytest.mark.parametrize(
    "messages",
    [(), ({"role": "user"},), ({"role": "user", "content": None},), ({"role": "user", "content": ["hi"]},)],
)
def test_messages_that_are_not_text_are_refused(messages):
    class Odd:
        rewards, notes = {}, ()

        def tasks(self, split):
            return [Task(split, "odd", messages)]

    with pytest.raises(DataError, match="not all text"):
        checked_tasks(Odd())


def test_a_class_that_inherits_from_env_sets_its_own_members():
    class Inherits(Env):
        def __init__(self):
            self.rewards, self.notes = {}, ("a row was skipped",)

        def tasks(self, split):
            return [task(split, split)]

    env = Inherits()
    assert env.notes == ("a row was skipped",)
    assert checked_tasks(env)["train"][0].task_id == "train"
