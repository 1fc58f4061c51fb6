"""LiteLLM's client, on OpenAI's chat completions."""

import json
import sys

from litellm import completion

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

messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    message = completion(model="openai/gpt-5", messages=messages, tools=TOOLS).choices[0].message
    messages.append(message)
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        result = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})
print(json.dumps({"answer": message.content}))
