"""Your own rewards are checked before a model is loaded."""

from functools import partial

import pytest

import truing
from truing.checks.rewards import check_rewards
from truing.errors import DataError, RecipeError, RewardError
from truing.rewards import PerTurn


class Words:
    """Say a word."""

    notes = ()

    def __init__(self, rewards):
        self.rewards = rewards

    def tasks(self, split):
        return [
            truing.Task(word, "words", ({"role": "user", "content": word},), word, word)
            for word in (("one", "two") if split == "train" else ("three", "four"))
        ]


def trl(prompts, completions, **kwargs):
    return [1.0 for _ in completions]


def trl_completions(completions, **kwargs):
    return [1.0 for _ in completions]


def of_one(rollout):
    return 1.0


def wrong_type(rollout, task):
    return rollout.text + task.answer


def no_task(rollout, task):
    return task["answer"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            trl,
            r"got: trl\(prompts, completions[\s\S]*rollout\.text is the completion",
        ),
        (trl_completions, r"takes other arguments[\s\S]*task\.info the columns"),
        (of_one, r"takes other arguments[\s\S]*def reward\(rollout, task\)"),
        (wrong_type, "returned a str"),
        (no_task, "raised TypeError: 'Task' object is not subscriptable"),
    ],
)
def test_a_wrong_reward_is_named(function, message):
    with pytest.raises(RewardError, match=message):
        check_rewards(Words({"mine": (function, 1.0)}))


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ({}, "has no rewards"),
        ([of_one], "has no rewards"),
        ({"mine": of_one}, "not a function with a weight"),
    ],
)
def test_rewards_of_another_form_are_named(rewards, message):
    with pytest.raises(RewardError, match=message):
        check_rewards(Words(rewards))


def test_no_reward_is_needed_where_nothing_is_graded():
    check_rewards(Words({}), graded=False)


def test_right_rewards_are_called_once():
    texts = []

    def seen(weight, rollout, task):
        texts.append(rollout.text)
        return weight

    def turns(rollout, task):
        return PerTurn([float(len(turn.token_ids)) for turn in rollout.turns])

    check_rewards(Words({"seen": (partial(seen, 0.5), 1.0), "turns": (turns, 1.0)}))
    assert texts == ["one"]


def test_the_outcome_of_an_episode_is_given_to_rewards():
    class Counter(Words):
        def open(self, task):
            return truing.ToolEpisode([], lambda: {"count": 0})

    def count(rollout, task):
        return float(rollout.outcome["count"])

    def misspelled(rollout, task):
        return float(rollout.outcome["cuont"])

    check_rewards(Counter({"count": (count, 1.0)}))
    with pytest.raises(RewardError, match="raised KeyError: 'cuont'"):
        check_rewards(Counter({"count": (misspelled, 1.0)}))
    check_rewards(Counter({"count": (misspelled, 1.0)}), call=False)


def test_no_model_is_loaded_for_a_wrong_reward(mini, monkeypatch, tmp_path):
    monkeypatch.setattr("truing.trainer.session.load_policy", None)
    with pytest.raises(RewardError, match="takes other arguments"):
        truing.train(mini(stages=["grpo"]), rewards=[trl], out=tmp_path / "run")
    with pytest.raises(RewardError, match="takes other arguments"):
        truing.train(mini(stages=["grpo"]), rewards=trl, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ([{"prompt": "x"}], r"got: a list of 1\n[\s\S]*name = \"dataset\""),
        (Words, r"got: the class Words\n[\s\S]*env=Words\(\)"),
        ("arithmetic", r"got: 'arithmetic'\n[\s\S]*\[env\] of the recipe"),
        (object(), "without tasks, rewards, notes"),
    ],
)
def test_what_is_no_environment_is_named(mini, env, message):
    with pytest.raises(RecipeError, match=message):
        truing.train(mini(), env=env)


def test_rows_in_the_recipe_belong_in_a_file(mini):
    with pytest.raises(
        RecipeError, match=r"'env' has an invalid value\n  got: a list of 1\n[\s\S]*rows\.jsonl"
    ):
        truing.train(mini() | {"env": [{"prompt": "x"}]})


def test_one_task_in_both_splits_is_named():
    env = Words({"mine": (lambda rollout, task: 1.0, 1.0)})
    env.tasks = lambda split: Words.tasks(env, "train")
    from truing.envs import checked_tasks

    with pytest.raises(DataError, match=r"one to train on and one to evaluate on\n  got: one\n"):
        checked_tasks(env)
