"""The client of Anthropic, on its messages."""

import json
import sys

from anthropic import Anthropic

TOWNS = {"Oslo": 4, "Rome": 21}
TOOLS = [
    {
        "name": "lookup",
        "description": "Return the temperature of a town.",
        "input_schema": {
            "type": "object",
            "properties": {"town": {"type": "string"}},
            "required": ["town"],
        },
    },
    {
        "name": "add",
        "description": "Add two numbers.",
        "input_schema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
]
FUNCTIONS = {"lookup": lambda town: TOWNS[town], "add": lambda a, b: a + b}

client = Anthropic()
messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    message = client.messages.create(
        model="claude-sonnet-4-5", max_tokens=1024, messages=messages, tools=TOOLS
    )
    messages.append({"role": "assistant", "content": message.content})
    calls = [block for block in message.content if block.type == "tool_use"]
    if not calls:
        break
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": str(FUNCTIONS[call.name](**call.input))}
        for call in calls
    ]
    messages.append({"role": "user", "content": results})
print(json.dumps({"answer": "".join(block.text for block in message.content if block.type == "text")}))
