"""The client of OpenAI, on its responses."""

import json
import sys

from openai import OpenAI

TOWNS = {"Oslo": 4, "Rome": 21}
TOOLS = [
    {
        "type": "function",
        "name": "lookup",
        "description": "Return the temperature of a town.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}},
            "required": ["town"],
        },
    },
    {
        "type": "function",
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
]
FUNCTIONS = {"lookup": lambda town: TOWNS[town], "add": lambda a, b: a + b}

client = OpenAI()
items = [{"role": "user", "content": sys.argv[1]}]
while True:
    response = client.responses.create(model="gpt-5", input=items, tools=TOOLS)
    items += response.output
    calls = [item for item in response.output if item.type == "function_call"]
    if not calls:
        break
    for call in calls:
        result = FUNCTIONS[call.name](**json.loads(call.arguments))
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": str(result)})
print(json.dumps({"answer": response.output_text}))
