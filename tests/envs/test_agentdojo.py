"""The package's own suites, tools and checks; the data folder holds what they gave elsewhere."""

import json

import pytest

from truing.envs import checked_tasks, make_env
from truing.rewards import grade
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Rollout
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def env():
    return make_env("agentdojo", {})


def run_episode(env, task, turns):
    """The reward, the outcome and what the tools said, for turns of a policy."""
    episode = env.open(task)
    contents = [message["content"] for said in turns for message in episode.reply(said)]
    outcome = json.loads(json.dumps(episode.outcome()))
    text = turns[-1].content
    rollout = Rollout("r", "g", task, (), text, Status.DONE, SamplingParams(), outcome=outcome)
    return grade(rollout, env.rewards)[0], outcome, contents


@pytest.fixture(scope="module")
def references(env):
    """What the published solutions come to."""
    return {name: run_episode(env, task, task.demonstration) for name, task in every(env).items()}


def every(env):
    return {task.task_id: task for task in (*env.tasks("train"), *env.tasks("eval"))}


def test_both_splits_can_be_used_and_hold_all_published_tasks(env):
    checked_tasks(env)
    assert len(every(env)) == 97
    assert {len(task.tools) for task in every(env).values()} == {24, 28, 11}


def test_reference_solutions_solve_every_task(references):
    assert [name for name, (reward, _, _) in references.items() if reward != 1.0] == []


def test_what_doing_nothing_solves_is_what_the_notes_list(env):
    free = [name for name, task in every(env).items() if env.open(task).solved()]
    assert free == [f"agentdojo-banking-user_task_{i}" for i in (5, 6, 8, 9, 10)]
    assert env.idle == tuple(free)
    assert env.notes == (f"solved without any action: {', '.join(free)}",)


def test_prompts_and_calls_are_those_of_the_package(env):
    from agentdojo.task_suite import get_suites  # it imports the clients of all providers: seconds

    from recipes.agentdojo.suite import VERSION

    for name, suite in get_suites(VERSION).items():
        default = suite.load_and_inject_default_environment({})
        for number, user_task in suite.user_tasks.items():
            task = every(env)[f"agentdojo-{name}-{number}"]
            office = user_task.init_environment(default.model_copy(deep=True))
            expected = [(call.function, dict(call.args)) for call in user_task.ground_truth(office)]
            assert task.messages[-1]["content"] == user_task.PROMPT
            calls = [call for said in task.demonstration for call in said.calls]
            assert [(call.name, dict(call.arguments)) for call in calls] == expected


def test_what_was_recorded_elsewhere_is_what_the_package_gives(env, references, published):
    rows = [json.loads(line) for line in (published / "agentdojo/user_tasks.jsonl").open(encoding="utf-8")]
    assert {row["id"] for row in rows if row["utility_of_doing_nothing"]} <= set(env.idle)
    for row in rows:
        task = every(env)[row["id"]]
        assert task.messages[-1]["content"] == row["prompt"]
        calls = [call for said in task.demonstration for call in said.calls]
        assert [call.name for call in calls] == [call["function"] for call in row["ground_truth_calls"]]
        assert bool(references[row["id"]][1]["changes"]) == bool(row["state_diff"])


def test_a_wrong_argument_is_reported_and_earns_nothing(env):
    task = every(env)["agentdojo-workspace-user_task_35"]  # find and delete the largest file
    wrong = [AssistantMessage(calls=(ToolCall("delete_file", {"file_id": "0"}),)), AssistantMessage("Done.")]
    reward, outcome, _ = run_episode(env, task, wrong)
    assert reward == 0.0
    assert outcome["changes"] != {}
    _, outcome, told = run_episode(
        env,
        task,
        [AssistantMessage(calls=(ToolCall("delete_file", {"file_id": "no such"}),)), AssistantMessage()],
    )
    assert told[0].startswith("Error: ")
    assert outcome["changes"] == {}


def test_each_episode_has_an_office_of_its_own(env):
    task = every(env)["agentdojo-workspace-user_task_35"]
    assert run_episode(env, task, task.demonstration)[1] == run_episode(env, task, task.demonstration)[1]
    assert run_episode(env, task, [AssistantMessage()])[0] == 0.0


def test_tasks_made_of_other_tasks_are_on_their_side(env):
    side = {task.task_id: split for split in ("train", "eval") for task in env.tasks(split)}
    for part, whole in ((16, 39), (22, 39), (35, 38), (31, 36), (1, 19)):
        assert side[f"agentdojo-workspace-user_task_{part}"] == side[f"agentdojo-workspace-user_task_{whole}"]


def test_suites_and_seed_choose():
    env = make_env("agentdojo", {"suites": ["slack", "banking"], "seed": 2})
    families = {task.family for task in every(env).values()}
    assert families == {"agentdojo/slack", "agentdojo/banking"}
    other = make_env("agentdojo", {"suites": ["slack", "banking"], "seed": 3})
    assert [t.task_id for t in env.tasks("eval")] != [t.task_id for t in other.tasks("eval")]


def test_the_clock_of_an_office_stands_still(env):
    task = every(env)["agentdojo-workspace-user_task_7"]
    first, second = (run_episode(env, task, task.demonstration)[1:] for _ in range(2))
    assert first == second
