"""A run without evaluation tasks, and a run that its event callback ends."""

import pytest
from runs import mini_table

from truing import train
from truing.envs import make_env
from truing.errors import RecipeError
from truing.record import RunReader
from truing.trainer.events import STOP


class NoEval:
    """An environment without evaluation tasks, made of another."""

    def __init__(self, env):
        self.env, self.rewards, self.notes = env, env.rewards, env.notes

    def tasks(self, split):
        return self.env.tasks("train") if split == "train" else []


def test_a_stop_of_the_callback_saves_and_ends_the_run(tmp_path):
    def watch(kind, facts):
        return STOP if kind == "step" and facts["record"].step == 0 else None

    table = mini_table(stages=["grpo"], eval={"tasks": 2, "base": False})
    table["grpo"]["steps"] = 3
    result = train(table, out=tmp_path / "run", on_event=watch)
    reader = RunReader(tmp_path / "run")
    assert [row.step for row in reader.steps()] == [0]
    assert (tmp_path / "run" / "checkpoints" / "grpo-000001").is_dir()
    assert list(result.evaluations) == ["after_grpo"]
    assert reader.events()[-1].kind == "finished"


def test_no_evaluation_tasks_are_needed_without_evaluation(tmp_path):
    table = mini_table(stages=["grpo"], eval={"tasks": 0})
    env = NoEval(make_env(table["env"]["name"], {k: v for k, v in table.pop("env").items() if k != "name"}))
    table["grpo"]["steps"] = 1
    result = train(table, env=env, out=tmp_path / "run", on_event=lambda kind, facts: None)
    assert result.evaluations == {}
    assert [event.kind for event in RunReader(tmp_path / "run").events()].count("eval") == 0


def test_one_evaluation_task_is_refused():
    with pytest.raises(RecipeError, match=r"an interval needs two"):
        train(mini_table(eval={"tasks": 1}))
