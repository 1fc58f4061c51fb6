"""A report as a whole: clean for a correct environment, and it names what was not checked."""

from dataclasses import replace

import pytest
from shop import Quiz, Shop

from truing.checks import report_json
from truing.checks.report import CHECKS, SPLITS, TASKS_PER_SPLIT
from truing.types.rollout import Task

BOS = {"check": "BOS is not doubled", "missing": "BOS: the tokenizer has none"}


@pytest.mark.parametrize("env", [Quiz, Shop])
def test_nothing_is_found_where_nothing_is_wrong(report, env):
    assert report_json(report(env()))["findings"] == []


def test_every_check_counts_its_items_or_names_what_is_missing(report):
    result = report_json(report(Shop()))
    assert list(result["checked"]) == [SPLITS, *CHECKS]
    assert result["not_checked"] == [BOS]
    assert [name for name, count in result["checked"].items() if count == 0] == [BOS["check"]]


def test_single_turns_have_no_episodes_and_no_tools_to_check(report):
    lacking = {each["check"]: each["missing"] for each in report_json(report(Quiz()))["not_checked"]}
    assert lacking["a task opens the same episode twice"] == "episodes: the environment has single turns only"
    for name in ("tool names are one set", "bad calls are answered", "tools are shown in full"):
        assert lacking[name] == "tools: no task has any"


def test_rows_that_were_left_out_and_prompts_with_several_answers_are_notes(report):
    env = Quiz()
    env.notes = ["left out rows that cannot be used: 2"]
    first, second, *others = env.made["train"]
    env.made["train"] = [first, replace(second, messages=first.messages, tools=first.tools), *others]
    assert first.answer != second.answer
    notes = [each["note"] for each in report_json(report(env))["notes"] if each["check"] == SPLITS]
    assert notes[0] == "left out rows that cannot be used: 2"
    assert f"1 prompt has several answers, such as tasks {first.task_id} and {second.task_id}" in notes[1]


def test_one_prompt_of_two_tasks_is_no_contradiction_where_tools_show_more(report):
    env = Shop()
    first, second, *others = env.made["train"]
    env.made["train"] = [first, replace(second, messages=first.messages), *others]
    assert not [each for each in report_json(report(env))["notes"] if "several answers" in each["note"]]


def test_tasks_that_cannot_be_used_are_the_one_finding(report):
    env = Quiz()
    env.made["eval"] = env.made["train"]
    result = report_json(report(env))
    (finding,) = result["findings"]
    assert (finding["check"], finding["what"]) == (
        SPLITS,
        "two tasks have one id, one to train on and one to evaluate on",
    )
    assert {each["check"] for each in result["not_checked"]} == set(CHECKS)


def test_a_long_split_is_sampled_from_its_start_to_its_end(report):
    env, count = Quiz(), 2 * TASKS_PER_SPLIT
    asked = [({"role": "user", "content": f"{i}?"},) for i in range(count)]
    env.made["train"] = [
        Task(str(i), f"half {2 * i // count}", asked[i], str(i), str(i)) for i in range(count)
    ]
    result = report(env)["the demonstration scores full"]
    assert result.count == TASKS_PER_SPLIT + len(env.made["eval"])
    env.made["train"][-2] = Task("wrong", "half 1", asked[-2], "1", "2")
    assert [each.where for each in report(env)["the demonstration scores full"].findings] == ["wrong"]
