"""The client of OpenAI, on its chat completions."""

import json
import sys

from openai import OpenAI

TOWNS = {"Oslo": 4, "Rome": 21}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Return the temperature of a town.",
            "parameters": {
                "type": "object",
                "properties": {"town": {"type": "string"}},
                "required": ["town"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    },
]
FUNCTIONS = {"lookup": lambda town: TOWNS[town], "add": lambda a, b: a + b}

client = OpenAI()
messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    completion = client.chat.completions.create(model="gpt-5", messages=messages, tools=TOOLS)
    message = completion.choices[0].message
    messages.append(message)
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        result = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})
print(json.dumps({"answer": message.content}))
