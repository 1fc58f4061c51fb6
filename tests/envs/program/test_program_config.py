"""The keys of programs: what contradicts, and which conversations they train."""

import json

import pytest

from truing.config import resolve
from truing.config.run_trust import outside_actions
from truing.errors import ProgramError, RecipeError
from truing.types.model_call import ModelCall


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"command": None}, "exactly one of both"),
        ({"command": ["true"], "function": "a:b"}, "exactly one of both"),
        ({"function": "a:b", "memory": "1GB"}, "memory is a key of programs with a command"),
        ({"runtime": "docker"}, "needs an image"),
        ({"image": "python:3.12"}, 'runtime is "subprocess"'),
        ({"variables": {"OPENAI_API_KEY": "x"}}, "each rollout gets with its own value"),
        ({"pass_variables": ["ANTHROPIC_BASE_URL"]}, "each rollout gets with its own value"),
        ({"variables": {"A": "1"}, "pass_variables": ["A"]}, "name it once"),
        ({"pass_variables": ["NO_SUCH_VARIABLE"]}, "that are not set"),
        ({"train": "last"}, 'train is "first", "all", or module:function'),
        ({"train": "sys:path"}, "names no function"),
        ({"override": "temperature"}, "env.override"),
        ({"runtime": "docker", "image": "i", "mounts": ["/data"]}, "mounts are /on/this/machine"),
        ({"memory": "lots"}, "gigabytes"),
        ({"max_disk": "0GB"}, "gigabytes"),
        ({"command": []}, "env.command"),
    ],
)
def test_keys_that_do_not_fit(make, keys, text):
    with pytest.raises(RecipeError) as caught:
        make(**keys)
    assert text in str(caught.value)


def test_a_run_directory_starts_and_imports_no_program_unless_it_is_trusted():
    env = {"name": "program", "data": "rows.jsonl", "train": "mine:chosen"}
    for key, value, text in (
        ("command", ["python", "agent.py"], "starts python agent.py (env.command)"),
        ("function", "agent.py:run", "imports agent.py:run (env.function)"),
    ):
        actions = list(outside_actions(resolve({"model": {"name": "tiny"}, "env": env | {key: value}})))
        assert set(actions) == {"imports mine:chosen (env.train)", text}


def call(system=""):
    messages = ({"role": "system", "content": system}, {"role": "user", "content": "hi"})
    return ModelCall(messages)


def test_which_conversations_are_trained(make):
    def trained(**keys):
        trains = make(**keys).calls.trains
        return [trains(call("You plan."), True), trains(call("You plan."), False), trains(call(), False)]

    assert trained() == [True, False, False]
    assert trained(train="all") == [True, True, True]
    assert trained(train="all", train_system="plan") == [True, True, False]
    assert trained(train_system="other") == [False, False, False]


def test_a_function_chooses_conversations(make, tmp_path, monkeypatch):
    (tmp_path / "choice.py").write_text(
        "def second(call, first):\n    return not first\n\ndef wrong(call, first):\n    return 'yes'\n"
    )
    monkeypatch.chdir(tmp_path)
    trains = make(train="choice.py:second").calls.trains
    assert [trains(call(), True), trains(call(), False)] == [False, True]
    with pytest.raises(ProgramError, match="no truth value"):
        make(train="choice.py:wrong").calls.trains(call(), True)


def test_calls_and_options(make):
    rules = make(max_calls=3, override=["temperature", "verbosity"]).calls
    assert (rules.max_calls, rules.override) == (3, {"temperature", "verbosity"})
    assert make(override="all").calls.override == {"all"}


@pytest.mark.parametrize("column", ["messages", "completion"])
def test_every_turn_of_the_assistant_is_demonstrated(make, tmp_path, column):
    call = {"type": "function", "function": {"name": "look", "arguments": {"word": "a"}}}
    said = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "assistant", "content": "moon"},
    ]
    result = {"role": "tool", "content": "MOON", "tool_call_id": "x"}
    prompt = [{"role": "user", "content": "find it"}]
    row = {"messages": [*prompt, said[0], result, said[1]], "answer": "moon"}
    if column == "completion":
        row = {"prompt": prompt, "completion": said, "answer": "moon"}
    rows = tmp_path / "conversations.jsonl"
    others = [{"messages": [{"role": "user", "content": f"other {i}"}], "answer": ""} for i in range(3)]
    rows.write_text("\n".join(map(json.dumps, [row, *others])))
    env = make(data=str(rows))
    tasks = [*env.tasks("train"), *env.tasks("eval")]
    (turns,) = [task.demonstration for task in tasks if task.demonstration]
    assert [turn.content for turn in turns] == ["", "moon"]
    assert [call.name for call in turns[0].calls] == ["look"]
    assert [len(task.messages) for task in tasks] == [1] * 4
