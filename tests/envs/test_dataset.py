"""Own rows as an environment: columns, splits, rewards, demonstrations, and what each error names."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folders import ROOT

from truing.config import load_recipe
from truing.envs import checked_tasks, make_env
from truing.errors import DataError, RecipeError
from truing.rewards import grade
from truing.rollouts.run_tasks import with_eval_tasks
from truing.types.message import AssistantMessage, ToolCall

EXACT = {"right": {"kind": "exact"}}


def row(number, **changes):
    return {"prompt": f"What is {number} + 1?", "answer": number + 1} | changes


@pytest.fixture
def make(tmp_path):
    """The environment over given rows."""

    def over(rows, **keys):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return make_env("dataset", {"data": str(path), "rewards": EXACT} | keys)

    return over


def everything(env):
    return [task for split in ("train", "eval") for task in env.tasks(split)]


def test_a_row_as_a_task(make):
    env = make([row(1, id="one", source="a book"), row(2, id="two")], system="Be brief.")
    checked_tasks(env)
    (task,) = (task for task in everything(env) if task.task_id == "one")
    assert task.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 1 + 1?"},
    )
    assert (task.answer, task.info, task.demonstration) == (2, {"source": "a book"}, None)


def test_files_of_all_kinds_hold_the_same_tasks(make, tmp_path):
    rows = [row(i, answer=str(i + 1), note='with "quotes", commas\nand lines') for i in range(8)]
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    expected = everything(make(rows))
    for name in ("rows.csv", "rows.parquet"):
        assert everything(make_env("dataset", {"data": str(tmp_path / name), "rewards": EXACT})) == expected


def test_columns_of_other_names(make):
    rows = [
        {"question": "Two?", "solution": "2", "why": "Two"},
        {"question": "One?", "solution": "1", "why": "One"},
    ]
    env = make(rows, prompt_column="question", answer_column="solution", completion_column="why")
    assert {(task.messages[0]["content"], task.answer, task.demonstration) for task in everything(env)} == {
        ("Two?", "2", "Two"),
        ("One?", "1", "One"),
    }
    assert all(task.info == {} for task in everything(env))


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("fields", "prompt_length", "demonstration"),
    [
        ({"messages": [{"role": "user", "content": "Hi"}]}, 1, None),
        ({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}, 1, "Ho"),
        ({"prompt": [{"role": "user", "content": "Hi"}], "completion": "Ho"}, 1, "Ho"),
        ({"prompt": "Hi", "completion": [{"role": "assistant", "content": "Ho"}]}, 1, "Ho"),
        (
            {"prompt": "Hi", "completion": [{"role": "assistant", "content": None, "tool_calls": [CALL]}]},
            1,
            (AssistantMessage("", (ToolCall("add", {"a": 1}, "c1"),)),),
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": "Add"},
                    {"role": "assistant", "content": None, "tool_calls": [CALL]},
                    {"role": "tool", "content": "2"},
                    {"role": "assistant", "content": "2"},
                ]
            },
            3,
            "2",
        ),
        ({"messages": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}, 1, "Ho"),
        ({"messages": '[{"role": "user", "content": "Hi"}]'}, 1, None),
    ],
)
def test_prompts_and_demonstrations(make, fields, prompt_length, demonstration):
    task = everything(make([fields | {"answer": "x", "id": "t"}, row(2)]))
    (task,) = (each for each in task if each.task_id == "t")
    assert len(task.messages) == prompt_length
    assert task.demonstration == demonstration


def test_tools_are_shown_to_the_model(make):
    schema = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}
    rows = [
        row(i, tools=tools) for i, tools in enumerate([[schema], [{"type": "function", "function": schema}]])
    ]
    for task in everything(make([*rows, row(2, tools=json.dumps([schema]))])):
        (spec,) = task.tools
        assert (spec.name, spec.description) == ("add", "Adds.")


@pytest.mark.parametrize(
    ("reward", "response", "score"),
    [
        ({"kind": "exact"}, "Two.", 1.0),
        ({"kind": "exact"}, "three", 0.0),
        ({"kind": "exact", "answer_format": "tag"}, "I think <answer>two</answer>", 1.0),
        ({"kind": "exact", "answer_format": "tag"}, "two", 0.0),
        ({"kind": "regex", "pattern": r"^\w+$"}, "three", 1.0),
        ({"kind": "regex", "pattern": r"^\w+$"}, "it is two", 0.0),
        ({"kind": "regex", "pattern": r"is (\w+)"}, "is one, no, is two", 1.0),
        ({"kind": "regex", "pattern": r"is (\w+)"}, "is two, no, is one", 0.0),
        ({"kind": "regex", "pattern": r"is (\w+)"}, "two", 0.0),
    ],
)
def test_rewards_of_text(make, rollout_of, reward, response, score):
    env = make([row(i, answer="two") for i in range(2)], rewards={"right": reward})
    assert grade(rollout_of(everything(env)[0], response), env.rewards).reward == score


@pytest.mark.parametrize(
    ("answer", "tolerance", "response", "score"),
    [
        (1200, 0.0, "#### 1,200", 1.0),
        ("1,200", 0.0, "The answer is 1201", 0.0),
        (1200, 0.01, "The answer is 1201", 1.0),
        ([7, 8], 0.0, "8", 1.0),
    ],
)
def test_rewards_of_numbers(make, rollout_of, answer, tolerance, response, score):
    reward = {"kind": "number", "tolerance": tolerance}
    env = make([row(i, answer=answer) for i in range(2)], rewards={"right": reward})
    assert grade(rollout_of(everything(env)[0], response), env.rewards).reward == score


def test_a_function_as_a_reward(make, rollout_of, tmp_path, monkeypatch):
    source = "def book(rollout, task):\n    return float(task.info['source'] in rollout.text)\n"
    (tmp_path / "book_rewards.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    rewards = {"book": {"kind": "book_rewards:book", "weight": 0.5}}
    env = make([row(i, source="Emma") for i in range(2)], rewards=rewards)
    assert grade(rollout_of(everything(env)[0], "as in Emma"), env.rewards).reward == 0.5
    with pytest.raises(RecipeError, match=r"has no 'bok'[\s\S]*did you mean 'book'"):
        make([row(1)], rewards={"book": {"kind": "book_rewards:bok"}})


def test_the_share_for_evaluation_goes_by_prompt_or_by_a_column(make):
    rows = [row(i, id=str(i), topic=i % 5) for i in range(40)]
    env = make([*rows, row(3, id="twin", prompt="What is  3 + 1? ")], eval_share=0.3)
    sides = [{task.task_id for task in env.tasks(split)} for split in ("train", "eval")]
    assert 11 <= len(sides[1]) <= 13
    assert any({"3", "twin"} <= side for side in sides)
    assert [t.task_id for t in make(rows, eval_share=0.3).tasks("eval")] == [
        t.task_id for t in make(rows, eval_share=0.3).tasks("eval")
    ]
    env = make(rows, eval_share=0.4, split_column="topic")
    topics = [{task.info["topic"] for task in env.tasks(split)} for split in ("train", "eval")]
    assert (len(topics[0]), len(topics[1])) == (3, 2)


def test_a_file_of_its_own_for_evaluation(make, tmp_path):
    apart = tmp_path / "eval.jsonl"
    apart.write_text(json.dumps(row(99, id=1)), encoding="utf-8")
    env = make([row(i, id=i) for i in range(3)], eval_data=str(apart))
    assert [task.task_id for task in env.tasks("eval")] == ["eval/1"]
    assert [task.task_id for task in env.tasks("train")] == ["0", "1", "2"]
    apart.write_text(json.dumps(row(2)), encoding="utf-8")
    with pytest.raises(DataError, match=r"prompt of a row to train on\n.*eval\.jsonl:1 and .*rows\.jsonl:3"):
        make([row(i) for i in range(3)], eval_data=str(apart))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"question": "Two?", "answer": 2},
            r"'prompt' is not .*rows\.jsonl:1[\s\S]*_column = \"question\"",
        ),
        (
            {"prompt": "Two?", "anwser": 2},
            r"'answer' is not .*:1[\s\S]*_column = \"anwser\"",
        ),
        ({"prompt": "Two?", "solution": 2}, r"'answer' is not a column[\s\S]*answer_column = \"solution\""),
        ({"prompt": "Two?", "answer": None}, r"'answer' is empty in .*:1"),
        ({"prompt": "Two?", "messages": "Two?", "answer": 2}, "two columns for the prompt"),
        (
            {"messages": [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "2"}]}
            | {"completion": "3", "answer": 2},
            "has two demonstrations",
        ),
        ({"prompt": 7, "answer": 2}, r"column 'prompt' of .*:1 cannot be used\n  got: 7"),
        ({"messages": [{"role": "assistant", "content": "Hi"}], "answer": 2}, "a message of the user"),
        ({"prompt": "Two?", "answer": {"is": 2}}, r"a reward cannot use column 'answer' of .*:1"),
        ({"prompt": "Two?", "answer": 2, "tools": [{"title": "add"}]}, "column 'tools' of .* cannot be used"),
        ({"prompt": "Two?", "answer": 2, "completion": [1]}, "column 'completion' of .* cannot be used"),
    ],
)
def test_a_row_that_cannot_be_used(make, fields, message):
    with pytest.raises(DataError, match=message):
        make([fields])
    (note,) = make([fields, row(5), row(6)]).notes
    assert "left out rows that cannot be used: 1: " in note
    assert "rows.jsonl:1" in note


def test_a_column_that_the_recipe_names_must_be_there(make):
    with pytest.raises(DataError, match=r"'topics' is not a column of [\s\S]*nearest column"):
        make([row(1, topic="a")], split_column="topics")


def test_all_columns_that_a_row_lacks_are_one_error(make):
    rows = [{"question": "Two?", "solution": 2, "demonstration": "2", "subject": "a"}]
    with pytest.raises(DataError) as error:
        make(rows, completion_column="reply", split_column="topic")
    for column in ("prompt", "answer", "reply", "topic"):
        assert f"{column!r} is not a column of" in error.value.what
    assert error.value.remedy.startswith(
        'set env.prompt_column = "question", env.answer_column = "solution",'
        ' env.completion_column = "demonstration", env.split_column = '
    )


def test_no_answer_is_needed_where_no_reward_reads_it(make):
    env = make(
        [{"prompt": f"{i}?"} for i in range(4)], rewards={"word": {"kind": "regex", "pattern": "word"}}
    )
    assert all(task.answer is None for task in everything(env))


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ({"right": {"kind": "exakt"}}, "did you mean 'exact'"),
        ({"right": {"kind": "regex"}}, "needs a pattern"),
        ({"right": {"kind": "regex", "pattern": "("}}, "not a regular expression"),
        ({"right": {"kind": "exact", "tolerance": 0.1}}, 'tolerance is a key of kind = "number"'),
        ({"right": {"kind": "judge"}}, r"needs a table \[env.judge\]"),
        ({"right": {"kind": "no_module:f"}}, "cannot be imported"),
        ({"right": {"kind": "math:pi"}}, "names no function"),
    ],
)
def test_rewards_that_cannot_be_made(make, rewards, message):
    with pytest.raises(RecipeError, match=message):
        make([row(1)], rewards=rewards)


def test_a_csv_file_names_its_broken_row(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("prompt,answer\n1?,2\n2?,3,4\n3?,4\n4?,5\n", encoding="utf-8")
    (note,) = make_env("dataset", {"data": str(path), "rewards": EXACT}).notes
    assert "rows.csv:3 has another number of cells" in note
    path.write_text("prompt,prompt\n1?,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="does not name the columns"):
        make_env("dataset", {"data": str(path)})


def test_the_built_in_recipe_reads_rows_with_a_prompt_and_an_answer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.jsonl").write_text("\n".join(json.dumps(row(i)) for i in range(12)))
    recipe = load_recipe("own-data", ["env.data=my.jsonl"])
    env = make_env("dataset", {key: value for key, value in recipe.env.items() if key != "name"})
    assert {split: len(tasks) for split, tasks in checked_tasks(env).items()} == {"train": 9, "eval": 3}
    assert env.notes == ()
    (filled, (note,)) = with_eval_tasks(recipe, env)
    assert filled.eval.tasks == 3
    assert "all 3 tasks for evaluation" in note
    with pytest.raises(RecipeError, match=r"the recipe lacks 'env\.data'[\s\S]*env\.data=…"):
        make_env("dataset", {key: value for key, value in recipe.env.items() if key not in ("name", "data")})


def test_too_few_rows_name_the_rows_that_were_skipped(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a\n' + json.dumps(row(1)))
    recipe = load_recipe("own-data", [f"env.data={path}"])
    env = make_env("dataset", {key: value for key, value in recipe.env.items() if key != "name"})
    with pytest.raises(DataError, match=r"too few evaluation tasks[\s\S]*got: 1; left out.*rows\.jsonl:1"):
        with_eval_tasks(recipe, env)


def test_an_empty_column_is_not_its_own_remedy(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row(1, answer=None, gold="2")))
    with pytest.raises(DataError, match="'answer' is empty in") as error:
        make_env("dataset", {"data": str(path), "rewards": {"right": {"kind": "exact"}}})
    assert '"answer"' not in error.value.remedy


def test_rows_without_an_answer_beside_others_are_noted(tmp_path):
    path, code = tmp_path / "rows.jsonl", tmp_path / "reward.py"
    code.write_text("def right(rollout, task):\n    return 1.0\n")
    rows = [row(i) for i in range(4)]
    del rows[1]["answer"]
    path.write_text("\n".join(map(json.dumps, rows)))
    rewards = {"right": {"kind": f"{code}:right"}}
    (note,) = make_env("dataset", {"data": str(path), "rewards": rewards}).notes
    assert note == f"1 row has no answer: rewards get None in its place (of data, first {path}:2)"
    path.write_text("\n".join(json.dumps({"prompt": each["prompt"]}) for each in rows))
    assert make_env("dataset", {"data": str(path), "rewards": rewards}).notes == ()


def test_the_example_rows_are_all_read():
    rewards = {"right": {"kind": "exact"}}
    env = make_env("dataset", {"data": str(ROOT / "recipes" / "own-data.jsonl"), "rewards": rewards})
    assert {split: len(tasks) for split, tasks in checked_tasks(env).items()} == {"train": 105, "eval": 35}
    assert env.notes == ()
