"""Texts: templates, tool calls, schemas, and answers of judges and engines."""

import functools
import json
from contextlib import suppress
from types import SimpleNamespace
from unittest import mock

import torch
from examples import example
from folders import WRITTEN
from mutate import change_bytes, change_json, change_value

from truing.chat import make_chat
from truing.chat.apply_template import apply_template
from truing.chat.call_parser import parse_calls
from truing.engines.vllm.client import VllmClient
from truing.engines.vllm.completion_response import read_completion, read_prompt_logprobs
from truing.envs.adapters.schema import validated_schema
from truing.envs.tools import Tool, ToolError
from truing.models.stop_ids import stop_ids
from truing.models.tiny import byte_tokenizer
from truing.rewards import judge_models
from truing.rewards.judge import read_score
from truing.rewards.judge_config import JudgeConfig
from truing.types.message import ToolSpec
from truing.types.sampling_params import SamplingParams
from truing.utils.http_request import Answer


def make_template(rng, folder):
    (folder / "template.jinja").write_bytes(
        change_bytes(rng, example(rng, "templates/*.jinja", WRITTEN).read_bytes())
    )


def read_template(folder):

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
    schema = {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^y"}, "n": {"type": "integer"}},
    }
    (folder / "schema.json").write_text(
        json.dumps(change_value(rng, schema) if rng.random() < 0.3 else schema)
    )


def read_call(folder):

    schema = json.loads((folder / "schema.json").read_text())
    spec = ToolSpec("a", "A.", validated_schema(schema, "a tool"))
    text = (folder / "turn").read_bytes().decode(errors="replace")
    parsed = parse_calls(text, (folder / "format").read_text(), [spec])
    for call in parsed.message.calls:
        with suppress(ToolError):  # what the policy reads
            Tool(spec, lambda **_: "ran").run(call.arguments)


def make_judge(rng, folder):
    reply = change_bytes(rng, b"The year is wrong.\n**Score: 2/10**").decode(errors="replace")
    answer = {"choices": [{"message": {"role": "assistant", "content": reply}}]}
    (folder / "answer.json").write_bytes(change_json(rng, json.dumps(answer).encode()))


def read_judge(folder):

    answer = Answer(200, (folder / "answer.json").read_bytes(), "application/json")
    with mock.patch.object(judge_models, "request", return_value=answer):
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
                    {"token_id": t, "logprob": -0.1, "top_logprobs": [{"token_id": t, "logprob": -0.1}]}
                    for t in (5, 7)
                ]
            },
            "finish_reason": "stop",
            "weight_versions": [{"start": 0, "version": "3-d"}],
        }
    ],
}


@functools.cache
def _client():
    return VllmClient("http://127.0.0.1:9", 1.0)


def make_engine(rng, folder):
    (folder / "answer.json").write_bytes(change_json(rng, json.dumps(COMPLETION).encode()))


def read_engine(folder):

    body = (folder / "answer.json").read_bytes()
    answer = _client()._json(Answer(200, body, "application/json"), "/x")
    request = SimpleNamespace(prompt_ids=torch.tensor([1, 2]))
    params = SamplingParams(temperature=0.7, top_k=4, stop_ids=(7,), max_new_tokens=4)
    read_completion(answer, request, "r1", params, 3, "d", 1000)
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

    answer = json.loads((folder / "answer.json").read_text())
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), dict):
        return  # the SDK refuses it
    spec = ToolSpec("a", "A.", validated_schema(answer["schema"], "the MCP tool a"))
    if isinstance(answer.get("arguments"), dict):
        with suppress(ToolError):
            Tool(spec, lambda **_: "ran").run(answer["arguments"])
