import pytest

from truing.envs import checked_tasks, make_env
from truing.errors import DataError, RecipeError
from truing.rewards import grade


@pytest.fixture(scope="module")
def env():
    return make_env("reasoning_gym", {"task": "chain_sum", "train": 40, "eval": 10})


@pytest.mark.parametrize("task", ["chain_sum", "countdown", "spell_backward", "word_ladder"])
def test_the_librarys_scorer_is_the_reward(task, rollout_of):
    env = make_env("reasoning_gym", {"task": task, "train": 6, "eval": 2})
    splits = checked_tasks(env)
    for each in (*splits["train"], *splits["eval"]):
        assert grade(rollout_of(each, f"Let me see. {each.demonstration}"), env.rewards)[0] == 1
        assert grade(rollout_of(each, "<answer></answer>"), env.rewards)[0] == 0
        assert grade(rollout_of(each, ""), env.rewards)[0] == 0


def test_a_score_between_0_and_1_is_kept(env, rollout_of):
    task = env.tasks("train")[0]
    part = grade(rollout_of(task, f"<answer>it is {task.answer}</answer>"), env.rewards)[0]
    assert 0 < part < 1


def test_a_puzzle_that_the_library_does_not_solve_has_no_demonstration():
    env = make_env("reasoning_gym", {"task": "graph_color", "train": 2, "eval": 1})
    assert {task.demonstration for task in env.tasks("train")} == {None}


def test_an_answer_of_several_lines_is_no_demonstration_of_one():
    keys = {"task": "binary_matrix", "train": 2, "eval": 1}
    shown = [
        make_env("reasoning_gym", keys | {"answer_format": kind}).tasks("train")[0].demonstration
        for kind in ("tag", "line")
    ]
    assert "\n" in shown[0]
    assert shown[1] is None


def test_more_tasks_leave_the_first_where_they_were(env):
    few = make_env("reasoning_gym", {"task": "chain_sum", "train": 4, "eval": 2})
    assert few.tasks("train") == env.tasks("train")[:4]
    assert few.tasks("eval") == env.tasks("eval")[:2]


def test_options_reach_the_library():
    keys = {"task": "chain_sum", "train": 4, "eval": 2, "options": {"min_terms": 9, "max_terms": 9}}
    asked = make_env("reasoning_gym", keys).tasks("train")[0].messages[-1]["content"]
    assert sum(asked.rpartition(":")[2].count(sign) for sign in (" + ", " - ")) == 8


def test_a_name_that_is_not_there_is_reported():
    with pytest.raises(RecipeError, match=r"no task 'chain_sums'[\s\S]*did you mean 'chain_sum'"):
        make_env("reasoning_gym", {"task": "chain_sums"})


@pytest.mark.parametrize("options", [{"min_trems": 2}, {"min_terms": 5, "max_terms": 2}])
def test_options_that_cannot_be_are_reported(options):
    with pytest.raises(RecipeError, match=r"does not take these env\.options"):
        make_env("reasoning_gym", {"task": "chain_sum", "options": options})


def test_more_questions_than_there_are_is_an_error():
    keys = {"task": "count_bits", "options": {"max_n": 20}}
    with pytest.raises(DataError, match="not enough different 'count_bits' questions"):
        make_env("reasoning_gym", keys)
