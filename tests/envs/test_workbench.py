"""WorkBench: a small folder of our own for the tools, and the published data for what it must agree with."""

import ast
import json
import math
from functools import cache

import pytest
from folders import rows
from workbench_folder import ANN, BO, FILES, TOOLS, table

from truing.envs import checked_tasks, make_env
from truing.errors import DataError
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Rollout
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status

CUSTOMERS = "customer_relationship_manager.search_customers"


def write(folder, files):
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return make_env("workbench", {"data": str(folder)})


@pytest.fixture
def small(tmp_path):
    return write(tmp_path, FILES)


@cache
def env_over(folder, **config):
    return make_env("workbench", {"data": str(folder), **config})


@pytest.fixture
def env(data):
    return env_over(data / "workbench")


@cache
def everything(env):
    return {task.task_id: task for split in ("train", "eval") for task in env.tasks(split)}


def call_tool(episode, name, /, **arguments):
    """What the model reads after one call."""
    (message,) = episode.reply(AssistantMessage(calls=(ToolCall(name, arguments),)))
    return message["content"]


def reward_of(env, task, outcome, status=Status.DONE):
    """Solved, and with side effects."""
    rollout = Rollout("r", "g", task, (), "", status, SamplingParams(), outcome=outcome)
    return tuple(env.rewards[name][0](rollout, task) for name in ("solved", "side_effects"))


def test_tools_are_described_with_plain_braces_and_what_they_need(small):
    spec = next(spec for spec in small.tasks("train")[0].tools if spec.name == "calendar.create_event")
    assert spec.description == "Gives {}."
    assert spec.parameters["required"] == TOOLS["calendar.create_event"]
    assert call_tool(small.open(small.tasks("train")[0]), "calendar.delete_event").startswith(
        "Error: wrong arguments"
    )


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("calendar.search_events", {"query": "stand"}, ["00000007"]),
        # the stand-up lasts from 9 to 10, and the borders count
        ("calendar.search_events", {"time_min": "2023-12-01 10:00:00"}, ["00000007", "00000003"]),
        ("calendar.search_events", {"time_min": "2023-12-01T10:01:00Z"}, ["00000003"]),
        ("calendar.search_events", {"time_max": "2023-12-01 10:59:59"}, ["00000007"]),
        ("calendar.search_events", {"time_max": "2023-12-01 11:00:00"}, ["00000007", "00000003"]),
        ("email.search_emails", {"query": "plan ANN"}, ["00000001", "00000000"]),
        ("email.search_emails", {"date_max": "2023-11-01"}, ["00000000"]),
        ("email.search_emails", {"query": "plan bo"}, []),
        ("project_management.search_tasks", {"board": "design", "list_name": "Backlog"}, ["00000000"]),
        ("project_management.search_tasks", {"board": "design", "due_date": "2023-12-05"}, []),
        (CUSTOMERS, {}, [f"0000000{i}" for i in range(5)]),  # five at most
        (
            CUSTOMERS,
            {"last_contact_date_min": "2023-11-02", "last_contact_date_max": "2023-11-02"},
            ["00000001"],
        ),
        (CUSTOMERS, {"status": "Lost"}, []),
    ],
)
def test_searches_find_what_they_should(small, name, arguments, told):
    output = json.loads(call_tool(small.open(small.tasks("train")[0]), name, **arguments))
    assert [next(iter(row.values())) for row in output] == told


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("total_visits_count", [], {"2023-11-01": 2, "2023-11-02": 0, "2023-11-03": 1}),
        ("total_visits_count", ["2023-11-02", "9999-12-31"], {"2023-11-02": 0, "2023-11-03": 1}),
        ("engaged_users_count", ["2023-11-01", "2023-11-01"], {"2023-11-01": 1}),
        (
            "traffic_source_count",
            ["0001-01-01", "2023-11-02", "referral"],
            {"2023-11-01": 1, "2023-11-02": 0},
        ),
        ("get_average_session_duration", [], {"2023-11-01": 15.0, "2023-11-03": 5.0}),
    ],
)
def test_analytics_count_by_day(small, name, arguments, told):
    named = dict(zip(TOOLS[f"analytics.{name}"], arguments, strict=False))
    assert json.loads(call_tool(small.open(small.tasks("train")[0]), f"analytics.{name}", **named)) == told


def test_the_outcome_is_what_changed(small):
    episode = small.open(small.tasks("train")[0])
    assert episode.outcome() == {}
    event = {"event_name": "Tea", "participant_email": "bo@firm.com", "event_start": "noon", "duration": "x"}
    created = call_tool(episode, "calendar.create_event", **event | {"participant_email": "Bo@firm.com"})
    assert len(json.loads(call_tool(episode, "calendar.search_events", time_min="2023-01-01"))) == 2, (
        "noon: no time"
    )
    call_tool(episode, "email.forward_email", email_id="00000000", recipient="Bo.Ray@firm.com")
    moved = {"field": "list_name", "new_value": "In Review"}
    call_tool(episode, "project_management.update_task", task_id="00000000", **moved)
    given = {"field": "assigned_to_email", "new_value": "Bo.Ray@firm.com"}
    assert "updated" in call_tool(episode, "project_management.update_task", task_id="00000000", **given)
    plotted = {"value_to_plot": "user_engaged", "plot_type": "bar"}
    call_tool(episode, "analytics.create_plot", time_min="a", time_max="b", **plotted)
    (mail,) = table(
        "email_id inbox/outbox sender/recipient subject sent_datetime body",
        ["2", "outbox", BO, "FW: Old plan", "2023-11-30 00:00:00", "Hi"],
    )
    assert created == "00000008"
    assert episode.outcome() == {
        "calendar": {"added": [{"event_id": "00000008", **event}]},
        "email": {"added": [mail]},
        "analytics": {"added": [{"file_path": "plots/a_b_user_engaged_bar.png"}]},
        "project_management": {"changed": [{"id": "00000000", "list_name": ["Backlog", "In Review"]}]},
    }
    assert small.open(small.tasks("train")[0]).outcome() == {}, "the next episode has an office of its own"


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("calendar.delete_event", ["3"], "there is no event_id '3'"),
        ("calendar.update_event", ["00000003", "colour", "red"], "there is no field 'colour'"),
        ("calendar.search_events", ["", "tomorrow"], "'tomorrow' is not a date"),
        ("email.send_email", ["ann", "a", "b"], "'ann' is not an email address"),
        ("analytics.create_plot", ["a", "b", "x", "bar"], "value_to_plot cannot be 'x'"),
        ("project_management.update_task", ["00000000", "assigned_to_email", ANN], f"only {BO}"),
        ("customer_relationship_manager.update_customer", ["00000000", "status", "won"], "cannot be 'won'"),
        ("company_directory.find_email_address", ["Cy"], "nobody is called 'Cy'"),
    ],
)
def test_the_model_learns_why_a_call_fails(small, name, arguments, told):
    episode = small.open(small.tasks("train")[0])
    answer = call_tool(episode, name, **dict(zip(TOOLS[name], arguments, strict=False)))
    assert answer.startswith("Error: ")
    assert told in answer
    assert episode.outcome() == {}


def test_case_counts_only_where_it_does_in_workbench(small):
    task = small.tasks("train")[0]
    expected = {"crm": {"changed": [{"id": "1", "notes": ["", "Called"], "status": ["Lead", "Won"]}]}}
    task = type(task)(task.task_id, task.family, task.messages, answer=expected)
    assert reward_of(small, task, json.loads(json.dumps(expected).replace("Called", "CALLED"))) == (1.0, 0.0)
    assert reward_of(small, task, json.loads(json.dumps(expected).replace("Won", "WON"))) == (0.0, 1.0)
    assert reward_of(small, task, {}) == (0.0, 0.0), "who does nothing has no side effects"
    assert reward_of(small, task, expected, Status.TRUNCATED) == (0.0, 0.0), (
        "a rollout has to come to its end"
    )


@pytest.mark.parametrize(
    ("tool", "parameters", "message"),
    [
        ("calendar.dance", [], "a tool that WorkBench does not have"),
        ("calendar.__init__", [], "a tool that WorkBench does not have"),
        ("dance", [], "a tool that WorkBench does not have"),
        ("calendar.delete_event", ["id"], "has other parameters"),
        ("calendar.delete_event", [3], r"field 'parameters.0.name' of .*tools.jsonl:1 cannot be used"),
    ],
)
def test_tools_of_another_form_are_refused(tmp_path, tool, parameters, message):
    row = {"name": tool, "parameters": [{"name": each} for each in parameters], "docstring": ""}
    with pytest.raises(DataError, match=message):
        write(tmp_path, FILES | {"tools": [row]})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"state_calendar_events\.jsonl"):
        make_env("workbench", {"data": str(tmp_path)})


def test_templates_do_not_straddle_the_splits(env, data):
    templates = {row["id"]: row["base_template"] for row in rows(data / "workbench" / "tasks.jsonl")}
    trained_on, held_out = ({templates[t.task_id] for t in tasks} for tasks in checked_tasks(env).values())
    assert trained_on.isdisjoint(held_out)
    assert everything(env).keys() == templates.keys()


def test_the_published_splits_and_what_doing_nothing_solves_of_them(published):
    env = env_over(published / "workbench")
    assert {split: len(env.tasks(split)) for split in ("train", "eval")} == {"train": 330, "eval": 110}
    assert len(env.idle) == 83
    events = call_tool(env.open(env.tasks("train")[0]), "calendar.search_events")
    assert len(json.loads(events)) == 5, "as the tool's description says"


def test_each_reference_solves_its_task_without_an_error(env, data):
    for row in rows(data / "workbench" / "tasks.jsonl"):
        task = everything(env)[row["id"]]
        episode = env.open(task)
        contents = [m["content"] for said in task.demonstration for m in episode.reply(said)]
        assert not [text for text in contents if text.startswith("Error")]
        assert episode.outcome() == plain(row["expected_state_diff"]), task.task_id
        assert reward_of(env, task, episode.outcome()) == (1.0, 0.0)


def plain(changes):
    """The published changes less NaN, which is a missing value and is listed as a change of itself."""
    if isinstance(changes, dict):
        pairs = ((key, plain(value)) for key, value in changes.items())
        return {key: value for key, value in pairs if value != [None, None]}
    if isinstance(changes, list):
        return [plain(each) for each in changes]
    return None if isinstance(changes, float) and math.isnan(changes) else changes


def test_doing_nothing_solves_the_tasks_that_are_listed_and_no_other(env):
    solved = set()
    for task in everything(env).values():
        episode = env.open(task)
        assert episode.reply(AssistantMessage("")) == []
        if reward_of(env, task, episode.outcome()) == (1.0, 0.0):
            solved.add(task.task_id)
    assert solved == set(env.idle)
    assert solved
    assert str(len(env.idle)) in env.notes[0]


def test_the_verdict_on_each_recorded_run_is_that_of_the_published_scorer(env, data):
    runs = rows(data / "workbench" / "model_predictions.jsonl")
    assert {(run["correct_outcome"], run["unwanted_side_effects"]) for run in runs} > {(True, False)}
    for run in runs:
        task = everything(env)[run["task_id"]]
        episode = env.open(task)
        for call in run["function_calls"]:
            episode.reply(AssistantMessage(calls=(parsed(call),)))
        status = Status.TRUNCATED if run["error"] else Status.DONE
        verdict = reward_of(env, task, episode.outcome(), status)
        assert verdict == (run["correct_outcome"], run["unwanted_side_effects"]), run


def parsed(call):
    """A recorded call such as ``email.delete_email.func(email_id="1")``."""
    expression = ast.parse(call, mode="eval").body
    arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in expression.keywords}
    return ToolCall(ast.unparse(expression.func).removesuffix(".func"), arguments)


def test_a_task_can_show_the_tools_of_its_domains_alone(env, data):
    every = next(iter(env.tasks("train")))
    assert len(every.tools) == len(rows(data / "workbench" / "tools.jsonl"))
    few = everything(env_over(data / "workbench", tools="domains"))["workbench-multi_domain-0"]
    shown = {spec.name.partition(".")[0] for spec in few.tools}
    assert shown == {"calendar", "customer_relationship_manager", "company_directory"}
