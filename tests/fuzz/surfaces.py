"""What comes from outside, by surface: how an input is made of a valid example, and what reads it.

``make(rng, folder)`` writes an input to a folder, ``read(folder)`` reads it as Truing does. Only a
``TruingError``, or what the surface documents, may come out of ``read``.
"""

import functools
import json
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import tomli_w
from folders import ROOT, WRITTEN
from mutate import change_bytes, change_file, change_json, change_lines, change_value

from truing.errors import TruingError


class Surface(NamedTuple):
    """A kind of input."""

    make: object
    read: object


def _example(rng, pattern, under=ROOT):
    return rng.choice(sorted(under.glob(pattern)))


# recipes and overrides


def make_recipe(rng, folder):
    data = _example(rng, "recipes/**/*.toml").read_bytes()
    if rng.random() < 0.6:
        import tomllib

        try:
            data = tomli_w.dumps(change_value(rng, tomllib.loads(data.decode()))).encode()
        except (TypeError, AttributeError, ValueError, RecursionError):  # what TOML cannot hold
            data = change_bytes(rng, data)
    else:
        data = rng.choice([change_bytes, change_lines])(rng, data)
    (folder / "recipe.toml").write_bytes(data)


def read_recipe(folder):
    from truing.config import load_recipe

    load_recipe(folder / "recipe.toml")


OVERRIDES = [
    *('grpo.learning_rate=1e-3', 'env.kinds=["max"]', "name=x", 'lora={"rank"=8}', "eval.tasks=8", "model.name=tiny"),
    *("guard.window=5", "episode.timeout=3", 'sampling.temperature=0.7', "stages=[\"sft\"]", "optimizer.betas=[0.9,0.95]"),
]


def make_overrides(rng, folder):
    chosen = [rng.choice(OVERRIDES) for _ in range(rng.randint(1, 3))]
    changed = change_bytes(rng, "\n".join(chosen).encode())
    (folder / "overrides.txt").write_bytes(changed)


def read_overrides(folder):
    from truing.config import load_recipe

    text = (folder / "overrides.txt").read_bytes().decode(errors="surrogateescape")  # as sys.argv
    load_recipe("tiny", text.split("\n"))


# rows, templates, calls

ROWS = ("gsm8k/train.jsonl", "musique/*.jsonl", "glaive_toolcall/*.jsonl", "bfcl/*.jsonl", "halueval/*.jsonl")


def make_rows(rng, folder):
    source = ROOT / "recipes/own-data.jsonl" if rng.random() < 0.3 else _example(rng, rng.choice(ROWS), WRITTEN)
    lines = source.read_bytes().splitlines(keepends=True)[:12]
    (folder / "rows.jsonl").write_bytes(b"".join(lines))
    change_file(rng, folder / "rows.jsonl")
    if rng.random() < 0.2:
        (folder / "rows.csv").write_bytes(change_bytes(rng, b"prompt,answer\nwhat,1\nwho,2\nwhy,3\nhow,4\n"))


def read_rows(folder):
    from truing.envs import checked_tasks, make_env

    path = folder / "rows.csv" if (folder / "rows.csv").exists() else folder / "rows.jsonl"
    exact = {"right": {"kind": "exact"}}
    first = path.read_bytes()[:3000]
    columns = {}
    for key, names in {"prompt_column": ("question", "instruction"), "answer_column": ("gold", "output")}.items():
        columns |= {key: name for name in names if f'"{name}"'.encode() in first}
    env = make_env("dataset", {"data": str(path), "rewards": exact, **columns})
    checked_tasks(env)


def make_template(rng, folder):
    (folder / "template.jinja").write_bytes(change_bytes(rng, _example(rng, "templates/*.jinja", WRITTEN).read_bytes()))


@functools.cache
def _tiny():
    from truing.models.load import load

    return load("tiny", device="cpu")


def read_template(folder):
    from truing.chat import make_chat
    from truing.chat.apply_template import apply_template
    from truing.models.stop_ids import stop_ids
    from truing.models.tiny import byte_tokenizer
    from truing.types.message import ToolSpec

    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (folder / "template.jinja").read_bytes().decode(errors="replace")
    messages = [{"role": "user", "content": "hello"}]
    tools = [ToolSpec("a", "A.", {"type": "object", "properties": {"x": {"type": "string"}}})]
    apply_template(tokenizer, messages, tools, prompt=True)
    chat = make_chat(tokenizer, stop_ids(tokenizer, None))
    chat.render(messages, tools)


CALLS = {
    "hermes": '<think>so</think>x <tool_call>\n{"name": "a", "arguments": {"x": "y", "n": 1}}\n</tool_call>',
    "llama3": '<|python_tag|>{"name": "a", "parameters": {"x": "y"}}',
    "mistral": '[TOOL_CALLS][{"name": "a", "arguments": {"x": "y"}}]',
    "qwen3_coder": "<tool_call>\n<function=a>\n<parameter=x>\ny\n</parameter>\n</function>\n</tool_call>",
    "glm45": "<tool_call>a\n<arg_key>x</arg_key>\n<arg_value>y</arg_value>\n</tool_call>",
    "lfm2": "<|tool_call_start|>[a(x='y', n=[1, {'b': None}])]<|tool_call_end|>",
}


def make_call(rng, folder):
    format, text = rng.choice(sorted(CALLS.items()))
    (folder / "format").write_text(format)
    (folder / "turn").write_bytes(change_bytes(rng, text.encode()))
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^y"}, "n": {"type": "integer"}}}
    (folder / "schema.json").write_text(json.dumps(change_value(rng, schema) if rng.random() < 0.3 else schema))


def read_call(folder):
    from truing.chat.call_parser import parse_calls
    from truing.envs.adapters.schema import validated_schema
    from truing.envs.tools import Tool, ToolError
    from truing.types.message import ToolSpec

    schema = json.loads((folder / "schema.json").read_text())
    spec = ToolSpec("a", "A.", validated_schema(schema, "a tool"))
    text = (folder / "turn").read_bytes().decode(errors="replace")
    parsed = parse_calls(text, (folder / "format").read_text(), [spec])
    for call in parsed.message.calls:
        try:
            Tool(spec, lambda **_: "ran").run(call.arguments)
        except ToolError:  # what the policy reads
            pass


# model folders, run directories, logs


def make_model(rng, folder):
    shutil.copytree(_tiny().path, folder / "model")
    path = rng.choice([path for path in sorted((folder / "model").iterdir()) if path.is_file()])
    if path.suffix == ".safetensors" and rng.random() < 0.7:  # its header
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = change_json(rng, data[8 : 8 + length])
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    else:
        change_file(rng, path)


def read_model(folder):
    from truing.models.load import load

    load(str(folder / "model"), device="cpu")


@functools.cache
def _run():
    import truing
    from runs import MINI

    folder = Path(tempfile.mkdtemp()) / "run"
    truing.train(MINI, out=folder, on_event=lambda kind, facts: None)
    return folder


COMMANDS = {
    "check": ("check", "RUN"),
    "why": ("why", "RUN"),
    "tokens": ("tokens", "RUN"),
    "scorecard": ("scorecard", "RUN"),
    "profile": ("profile", "RUN"),
    "compare": ("compare", "RUN", "RUN"),
    "report": ("report", "RUN", "--out", "RUN/report.html"),
    "tail": ("tail", "RUN", "--once"),
    "export": ("export", "RUN", "--to", "RUN/model"),
}


def make_run(rng, folder):
    shutil.copytree(_run(), folder / "run")
    files = [path for path in sorted((folder / "run").rglob("*")) if path.is_file()]
    facts = [path for path in files if path.suffix in (".json", ".jsonl", ".toml") or path.name == "last"]
    change_file(rng, rng.choice(facts if rng.random() < 0.8 else files))
    if rng.random() < 0.3:
        shutil.rmtree(folder / "run/rollouts", ignore_errors=True)
    (folder / "command").write_text(rng.choice(["board", *COMMANDS]))


def read_run(folder):
    command = (folder / "command").read_text()
    if command == "board":
        return _board_answers(folder)
    return _command([word.replace("RUN", str(folder / "run")) for word in COMMANDS[command]])


def _command(words):
    import contextlib
    import io

    import typer
    from truing.cli import app

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            app(words, standalone_mode=False)
        except (SystemExit, typer.Exit):
            pass


def _board_answers(folder):
    from truing.board.queries import RUN_VIEWS, Board
    from truing.utils.jsonl import dump_json

    query = {"run": "run", "stage": "grpo", "update": "1", "sample": "0/grpo/0/0/0", "group": "0/grpo/0/0"}
    board = Board(folder)
    for view in (*RUN_VIEWS, "runs"):
        try:
            dump_json(board.answer(view, query | {"chart": "lr", "number": "lr"}))
        except TruingError:
            pass


def make_request(rng, folder):
    query = {"run": "run", "stage": "grpo", "update": "1", "sample": "0/grpo/0/0/0", "group": "0/grpo/0/0"}
    query |= {"chart": "lr", "number": "lr", "from": "0", "to": "3", "token": "0", "a": "run", "b": "run", "code": "MSK003"}
    key = rng.choice(sorted(query))
    query[key] = change_bytes(rng, query[key].encode()).decode(errors="replace")
    (folder / "query.json").write_text(json.dumps(query))


def read_request(folder):
    from truing.board.queries import RUN_PAIR_VIEWS, RUN_VIEWS, Board

    query = json.loads((folder / "query.json").read_text())
    for view in (*RUN_VIEWS, *RUN_PAIR_VIEWS, "runs", "lab", "audit", "rule", query["chart"]):
        try:
            _board().answer(view, query)
        except TruingError:
            pass


@functools.cache
def _board():
    from truing.board.queries import Board

    return Board(_run().parent)


LOGS = ("training_logs/logs/*.jsonl",)


@functools.cache
def _logs():
    """A log of each kind, small."""
    folder = Path(tempfile.mkdtemp())
    from foreign import trainer_state
    from test_foreign_trackers import history, wandb_log

    lines = _first(WRITTEN / "training_logs/logs/degraded.jsonl", 20)
    (folder / "a.jsonl").write_bytes(lines)
    records = [json.loads(line) for line in lines.splitlines()]
    names = [name for name in records[0] if isinstance(records[0][name], int | float)]
    rows = [",".join(names), *(",".join(str(each.get(name, "")) for name in names) for each in records)]
    (folder / "a.csv").write_text("\n".join(rows))
    (folder / "console.log").write_text("\n".join(f"{each}" for each in records))
    (folder / "verl.log").write_text("\n".join("step:%d - actor/kl:0.1 - critic/rewards/mean:0.5" % i for i in range(9)))
    wandb_log(folder / "run-a.wandb", [history(i) for i in range(9)])
    state = {"log_history": [{"step": i, "reward": 0.5, "loss": 0.1, "kl": 0.2} for i in range(9)], "global_step": 9}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    assert trainer_state
    return folder


def _first(path, count):
    return b"".join(path.read_bytes().splitlines(keepends=True)[:count])


def make_log(rng, folder):
    source = rng.choice(sorted(_logs().iterdir()))
    shutil.copy(source, folder)
    change_file(rng, folder / source.name)


def read_log(folder):
    from truing.doctor.importers.diagnose_log import diagnose_log

    for path in folder.iterdir():
        diagnose_log(path)


# answers of services


def make_judge(rng, folder):
    reply = change_bytes(rng, b"The year is wrong.\n**Score: 2/10**").decode(errors="replace")
    answer = {"choices": [{"message": {"role": "assistant", "content": reply}}]}
    (folder / "answer.json").write_bytes(change_json(rng, json.dumps(answer).encode()))


def read_judge(folder):
    from truing.rewards import judge_models
    from truing.rewards.judge import read_score
    from truing.rewards.judge_config import JudgeConfig
    from truing.utils.http_request import Answer

    answer = Answer(200, (folder / "answer.json").read_bytes())
    with mock.patch.object(judge_models, "request", lambda *_, **__: answer):
        endpoint = judge_models.Endpoint(JudgeConfig(base_url="http://x", model="m", prompt="$response"))
        read_score(endpoint.reply("?"))


COMPLETION = {
    "request_id": "cmpl-r1",
    "prompt_token_ids": [1, 2],
    "choices": [
        {
            "token_ids": [5, 7],
            "logprobs": {
                "content": [
                    {"token_id": t, "logprob": -0.1, "top_logprobs": [{"token_id": t, "logprob": -0.1}]} for t in (5, 7)
                ]
            },
            "finish_reason": "stop",
            "weight_versions": [{"start": 0, "version": "3"}],
        }
    ],
}


def make_engine(rng, folder):
    (folder / "answer.json").write_bytes(change_json(rng, json.dumps(COMPLETION).encode()))


def read_engine(folder):
    import httpx2
    import torch
    from truing.engines.vllm.client import VllmClient
    from truing.engines.vllm.completion_response import read_completion, read_prompt_logprobs
    from truing.types.sampling_params import SamplingParams

    body = (folder / "answer.json").read_bytes()
    client = VllmClient("http://x", 1.0)
    client._http = httpx2.Client(
        base_url="http://x",
        transport=httpx2.MockTransport(
            lambda _: httpx2.Response(200, content=body, headers={"content-type": "application/json"})
        ),
    )
    answer = client.get("/x")
    request = SimpleNamespace(prompt_ids=torch.tensor([1, 2]))
    params = SamplingParams(temperature=0.7, top_k=4, stop_ids=(7,), max_new_tokens=4)
    read_completion(answer, request, "r1", params, 3, "d")
    read_prompt_logprobs(answer, request.prompt_ids)


SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "string", "pattern": "^[a-z]+$"}, "y": {"$ref": "#/$defs/n"}},
    "$defs": {"n": {"type": ["integer", "null"], "minimum": 0}},
    "required": ["x"],
    "additionalProperties": False,
}


def make_mcp(rng, folder):
    content = [{"type": "text", "text": "a"}]
    answer = {"schema": SCHEMA, "arguments": {"x": "abc", "y": 1}, "content": content}
    (folder / "answer.json").write_text(json.dumps(change_value(rng, answer)))


def read_mcp(folder):
    from truing.envs.adapters.schema import validated_schema
    from truing.envs.tools import Tool, ToolError
    from truing.types.message import ToolSpec

    answer = json.loads((folder / "answer.json").read_text())
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), dict):
        return  # the SDK refuses it
    spec = ToolSpec("a", "A.", validated_schema(answer["schema"], "the MCP tool a"))
    if isinstance(answer.get("arguments"), dict):
        try:
            Tool(spec, lambda **_: "ran").run(answer["arguments"])
        except ToolError:
            pass


SURFACES = {
    "recipes": Surface(make_recipe, read_recipe),
    "overrides": Surface(make_overrides, read_overrides),
    "rows": Surface(make_rows, read_rows),
    "templates": Surface(make_template, read_template),
    "calls": Surface(make_call, read_call),
    "models": Surface(make_model, read_model),
    "runs": Surface(make_run, read_run),
    "requests": Surface(make_request, read_request),
    "logs": Surface(make_log, read_log),
    "judges": Surface(make_judge, read_judge),
    "engines": Surface(make_engine, read_engine),
    "schemas": Surface(make_mcp, read_mcp),
}
