"""Every path reads a row with one function: odd rows are trained, refused or noted alike in all of them."""

import ast
import json
import re

import pytest
from folders import ROOT
from odd_rows import PATHS, answer, call, said, spec, user

from truing.envs import make_env
from truing.errors import TruingError
from truing.trl import GRPOConfig, GRPOTrainer

SFT = ("whole", "turns", "completion", "dataset")
PROMPTS = ("grpo", "rloo")
THOUGHT = "7 times 13"
CALLED = '{"name": "f", "arguments": {"a": 1}}'


def calling(arguments, name="f", **keys):
    return [user("Go?"), said("", tool_calls=[call(name, arguments)], **keys), answer("3", name), said("3.")]


INTEGER = {"type": "integer"}

SHOWN = {
    "reasoning_content": ([user("Prime?"), said("No.", reasoning_content=THOUGHT)], {}, THOUGHT),
    "reasoning": ([user("Prime?"), said("No.", reasoning=THOUGHT)], {}, THOUGHT),
    "thinking": ([user("Prime?"), said("No.", thinking=THOUGHT)], {}, THOUGHT),
    "reasoning and a null": (
        [user("Prime?"), said("No.", reasoning_content=None, reasoning=THOUGHT)], {}, THOUGHT,
    ),
    "reasoning as parts": (
        [user("Prime?"), said("No.", reasoning_content=[{"type": "text", "text": THOUGHT}])], {}, THOUGHT,
    ),
    "arguments as JSON text": (calling('{"a": 1}'), {}, CALLED),
    "a call without the key function": (
        [user("Go?"), said("", tool_calls=[{"name": "f", "arguments": {"a": 1}}]), answer("3"), said("3.")],
        {}, CALLED,
    ),
    "calls as JSON text": (
        [user("Go?"), said("", tool_calls=json.dumps([call("f", {"a": 1})])), answer("3"), said("3.")],
        {}, CALLED,
    ),
    "no content beside calls": (
        [user("Go?"), {"role": "assistant", "tool_calls": [call("f", {"a": 1})]}, answer("3"), said("3.")],
        {}, CALLED,
    ),
    "null content beside calls": (
        [user("Go?"), said(None, tool_calls=[call("f", {"a": 1})]), answer("3"), said("3.")], {}, CALLED,
    ),
    "nulls of Arrow, no schema": (calling({"a": 1, "b": None}), {}, CALLED),
    "nulls of Arrow, not declared": (
        calling({"a": 1, "b": None}), {"tools": [spec("f", a=INTEGER, b=None)]}, CALLED,
    ),
    "nulls of Arrow, not nullable": (
        calling({"a": 1, "b": None}), {"tools": [spec("f", a=INTEGER, b={"type": "string"})]}, CALLED,
    ),
    "a null that the schema allows": (
        calling({"a": None}), {"tools": [spec("f", a={"type": ["integer", "null"]})]}, '{"a": null}',
    ),
    "a nullable argument": (
        calling({"a": None}), {"tools": [spec("f", a={"type": "integer", "nullable": True})]}, '{"a": null}',
    ),
    "a null in JSON text": (calling('{"a": null}'), {}, '{"a": null}'),
    "nulls within an object": (
        calling({"a": {"b": 1, "c": None}}),
        {"tools": [spec("f", a={"properties": {"b": {}}})]},
        '{"a": {"b": 1}}',
    ),
    "content as parts": (
        [user([{"type": "text", "text": "Is "}, {"type": "text", "text": "91 prime?"}]), said("No.")],
        {}, "Is 91 prime?",
    ),
    "parts with nulls": (
        [user([{"type": "text", "text": "Prime?", "image_url": None}]), said("No.")], {}, "Prime?",
    ),
    "an answer as parts": ([user("Prime?"), said([{"type": "text", "text": "Never."}])], {}, "Never."),
    "a reply as an object": (
        [user("Go?"), said("", tool_calls=[call("f", {})]), answer({"t": 3}), said("3.")], {}, '{"t": 3}',
    ),
    "a reply as a list": (
        [user("Go?"), said("", tool_calls=[call("f", {})]), answer([1, 2]), said("3.")], {}, "[1, 2]",
    ),
    "a reply as a number": (
        [user("Go?"), said("", tool_calls=[call("f", {})]), answer(37), said("3.")], {}, "37",
    ),
    "roles of ShareGPT": (
        [{"from": "human", "value": "Is 91 prime?"}, {"from": "gpt", "value": "No."}], {}, "Is 91 prime?",
    ),
    "a conversation that the assistant begins": ([said("Hello!"), user("Prime?"), said("No.")], {}, "Hello!"),
}  # fmt: skip
"""Messages, other columns, and a text that every path shows."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", SHOWN)
def test_a_row_is_read_alike_in_every_path(name, path, tmp_path):
    messages, columns, text = SHOWN[name]
    read = PATHS[path](messages, columns, tmp_path, "qwen3")
    if (path in PROMPTS and "schema allows" in name) or (name == "a nullable argument" and path in PROMPTS):
        text = '"arguments": {}'  # prompts have no column of tools: TRL takes them as an argument
    if text is THOUGHT and path in PROMPTS:
        assert "<think>" not in read.text  # of earlier turns: Qwen's template leaves it out by design
    else:
        assert text in read.text
    if text is THOUGHT and path in SFT:
        assert text in read.trained
    assert ("null" in read.text) == ("null" in text)


LAST = [user("a?"), said("BAD"), user("b?"), said("good")]
MARKS = {"weight": 0, "loss": False, "loss_mask": 0, "loss_scale": 0.0, "train": False, "training": False}


@pytest.mark.parametrize("key", [*MARKS, "trainable"])
def test_a_turn_that_is_marked_is_context(key, tmp_path):
    """In turns; whole rows refuse such a mark, and prompts and one last answer do not train it anyway."""
    off, on = (0, 1) if key == "weight" else (False, True)
    marked = [user("a?"), said("BAD", **{key: off}), user("b?"), said("good", **{key: on})]
    for path in ("turns", "completion", "dataset"):
        read = PATHS[path](marked, {}, tmp_path, "qwen2_5")
        assert "BAD" in read.text
        assert "BAD" not in read.trained
        assert "good" in read.trained
    with pytest.raises(TruingError, match=r"row 0 of train_dataset marks a message[\s\S]*assistant_only"):
        PATHS["whole"](marked, {}, tmp_path, "qwen2_5")
    for path in PROMPTS:
        assert "marked as to be trained" in PATHS[path](marked, {}, tmp_path, "qwen2_5").notes


def broken(**keys):
    return [
        user("Go?"),
        said("", tool_calls=[{"id": "call00000", "type": "function", **keys}]),
        answer("3"),
        said("3."),
    ]


HALF = json.loads('"smile \\ud83d"')

REFUSED = {
    "unreadable arguments": (broken(function={"name": "f", "arguments": "{a: 1}"}), {}, "arguments of f"),
    "null arguments": (broken(function={"name": "f", "arguments": None}), {}, "arguments of f"),
    "missing arguments": (broken(function={"name": "f"}), {}, "arguments of f"),
    "a list of arguments": (broken(function={"name": "f", "arguments": "[1]"}), {}, "arguments of f"),
    "text in text": (broken(function={"name": "f", "arguments": '"{}"'}), {}, "arguments of f"),
    "no name": (broken(function={"arguments": {}}), {}, "call 1"),
    "an empty name": (broken(function={"name": "", "arguments": {}}), {}, "call 1"),
    "no function": (broken(), {}, "call 1"),
    "calls that are no list": ([user("a?"), said("", tool_calls={"f": 1}), said("x")], {}, "of assistant"),
    "half a surrogate pair": ([user(HALF), said("hi")], {}, "surrogate"),
    "half a pair in arguments": (calling({"a": HALF}), {}, "surrogate"),
    "half a pair in a column": ([user("a?"), said("b")], {"other": {"deep": [HALF]}}, "'other'"),
    "no content": ([user("Go?"), {"role": "assistant"}, user("x"), said("x")], {}, "content"),
    "a null content of the user": ([user(None), said("x")], {}, "content"),
    "an image": ([user([{"type": "image_url", "image_url": {"url": "x"}}]), said("x")], {}, "content"),
    "a number as content": ([user(3), said("x")], {}, "content"),
    "no role": ([{"content": "x"}, said("x")], {}, "role"),
    "a message that is text": (["a?", said("x")], {}, "message 1"),
    "a refusal": ([user("a?"), said("", refusal="I cannot."), user("b"), said("x")], {}, "refusal"),
    "audio": ([user("a?"), said("x", audio={"id": "1"}), user("b"), said("x")], {}, "audio"),
    "OpenAI's old call": (
        [user("a?"), said("", function_call={"name": "f"}), user("b"), said("x")], {}, "tool_calls",
    ),
    "a weight that is no mark": ([user("a?"), said("x", weight=0.5), user("b"), said("x")], {}, "weight"),
    "spans to train": ([user("a?"), said("x", train_detail=[{}]), user("b"), said("x")], {}, "train_detail"),
    "marks that differ": ([user("a?"), said("x", weight=0, train=True), user("b"), said("x")], {}, "agree"),
    "tools that are no JSON": ([user("a?"), said("x")], {"tools": "[{"}, "'tools'"),
    "tools without a name": ([user("a?"), said("x")], {"tools": [{"function": {}}]}, "'tools'"),
    "variables that are no object": ([user("a?"), said("x")], {"chat_template_kwargs": [1]}, "kwargs"),
    "an unread variable": ([user("a?"), said("x")], {"chat_template_kwargs": {"mood": 1}}, "mood"),
    "images": ([user("a?"), said("x")], {"images": ["a.png"]}, "images"),
}  # fmt: skip
"""Messages, other columns, and what each path's error says beside the row."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_row_is_refused_alike_in_every_path(name, path, tmp_path):
    messages, columns, text = REFUSED[name]
    if path in PROMPTS and "tools" in columns:
        return  # the tools of prompts are an argument, and the column is noted
    with pytest.raises(TruingError, match=text) as refused:
        PATHS[path](messages, columns, tmp_path, "qwen3")
    where = r"rows\.jsonl:1" if path == "dataset" else "row 0 of train_dataset"
    assert re.search(where, refused.value.what)
    assert refused.value.got
    assert refused.value.expected


def test_reasoning_that_a_template_cannot_write_is_refused(tmp_path):
    for path in SFT:
        with pytest.raises(TruingError, match=r"reasoning[\s\S]*remedy: [\s\S]*<think>"):
            PATHS[path](SHOWN["reasoning_content"][0], {}, tmp_path, "qwen2_5")


@pytest.mark.parametrize("path", SFT)
@pytest.mark.parametrize("given", [json.dumps, lambda tools: tools, lambda tools: [json.dumps(tools[0])]])
def test_tools_as_text(given, path, tmp_path):
    tools = [spec("move", x={"type": "integer"}, y=None)] if path != "x" else []
    read = PATHS[path]([user("a?"), said("b")], {"tools": given(tools)}, tmp_path, "qwen3")
    assert '"move"' in read.text
    assert ("null" in read.text) == (given(tools) != tools)  # JSON text has its own nulls only


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("given", [json.dumps, dict])
def test_the_variables_of_a_row_count_in_every_path(given, path, tmp_path):
    columns = {
        "chat_template_kwargs": given(
            {"enable_thinking": False, "other": None} if given is dict else {"enable_thinking": False}
        )
    }
    read = PATHS[path]([user("a?"), said("No.")], columns, tmp_path, "qwen3")
    assert "<think>" in read.text
    if path not in ("whole", *PROMPTS):
        assert read.trained == "No.<|im_end|>"


@pytest.mark.parametrize("path", PATHS)
def test_keys_and_columns_that_nothing_reads_are_noted_once(path, tmp_path):
    columns = {"enable_thinking": True, "rejected": "x", "data_source": "x"}
    calls = [{**call("f", {}), "strict": 1}, {"function": {**call("f", {})["function"], "parsed": 1}}]
    said_all = [user("a?", name="Ann"), said("", mood="glad", tool_calls=calls), answer("3"), said("b")]
    read = PATHS[path](said_all, columns, tmp_path, "qwen3")
    for name in ("'name'", "'mood'", "'strict'", "'parsed'", *columns):
        assert read.notes.count(name) == 1


def test_columns_that_a_function_names_are_not_noted(tmp_path):
    class Game:
        def reset(self, level, **_):
            return None

    def reward(completions, answer, **_):
        return [0.0 for _ in completions]

    rows = [{"prompt": [user("a?")], "answer": 1, "level": 2, "solution": 3}] * 8
    args = GRPOConfig(str(tmp_path), use_cpu=True, max_steps=1)
    (note,) = GRPOTrainer("tiny", reward, args, rows).env.notes
    assert re.search(r"train_dataset that no reward function names[^:]*: level, solution$", note)
    (note,) = GRPOTrainer("tiny", reward, args, rows, environment_factory=Game).env.notes
    assert note.endswith(": solution")


@pytest.mark.parametrize(
    ("rewards", "text"),
    [({"right": {"kind": "exact"}}, "are not read: source"), ({}, "only your reward functions get: source")],
)
def test_columns_of_own_data_that_graders_do_not_read_are_noted(rewards, text, tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": f"{i}?", "answer": i, "topic": i, "source": "x"} for i in range(8)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (note,) = make_env("dataset", {"data": str(path), "split_column": "topic", "rewards": rewards}).notes
    assert note == f"columns of data that {text}"


KEYS = {"messages", "prompt", "completion", "tools", "tool_calls", "conversations"}

ELSEWHERE = {
    "analysis/demonstrations.py": "messages of a rollout",
    "board/data/texts.py": "columns of a record",
    "record/segments.py": "columns of a record",
    "board/views/step.py": "messages of a rollout",
    "chat/dropped_content.py": "messages of a rollout",
    "chat/tool_prompt.py": "messages of a rollout",
    "doctor/rules/tol001.py": "messages of a rollout",
    "envs/adapters/verifiers.py": "messages of a rollout",
    "metrics/episodes.py": "messages of a rollout",
    "endpoint/dialects/anthropic_messages.py": "requests of programs, whose messages `read_message` reads",
    "endpoint/dialects/chat_completions.py": "requests of programs, whose messages `read_message` reads",
    "endpoint/dialects/reading.py": "requests of programs, whose messages `read_message` reads",
    "endpoint/dialects/responses.py": "requests of programs, whose messages `read_message` reads",
    "endpoint/dialects/responses_items.py": "requests of programs, whose messages `read_message` reads",
    "endpoint/read_back.py": "answers to programs",
    "measurements/program_requests.py": "messages of a rollout",
    "rollouts/programs/call.py": "messages of a rollout",
    "rollouts/programs/history.py": "messages of a rollout",
    "types/message.py": "messages of a rollout",
    "utils/render_template.py": "options of a template",
    "integrations/trl/demonstrations.py": "rows of TRL's own trainer, as TRL reads them",
    "integrations/trl/grpo.py": "rows of TRL's own trainer, as TRL reads them",
}
"""Modules that take these keys of something other than a row that Truing trains."""


def keys_taken(source):
    """The keys that a module takes of a mapping."""
    for node in ast.walk(ast.parse(source)):
        key = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key = node.slice
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("get", "pop") and node.args:
            key = node.args[0]
        if isinstance(key, ast.Constant) and key.value in KEYS:
            yield key.value


def test_one_function_reads_a_row():
    source = ROOT / "src" / "truing"
    found = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if [*keys_taken(path.read_text(encoding="utf-8"))]
    }
    assert {path for path in found if not path.startswith("envs/conversations/")} == {*ELSEWHERE}
