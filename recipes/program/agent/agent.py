"""An agent as it was before anyone trained it: it answers a question with a tool, and prints its answer.

It knows nothing of Truing: the client of ``openai`` reads OPENAI_BASE_URL and OPENAI_API_KEY.
"""

import json
import sys
from pathlib import Path
from typing import Any

from openai import OpenAI

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "price",
            "description": "The price of a fruit.",
            "parameters": {
                "type": "object",
                "properties": {"fruit": {"type": "string"}},
                "required": ["fruit"],
            },
        },
    }
]

PRICES = json.loads(Path("prices.json").read_text(encoding="utf-8"))


def run_tool(arguments: str) -> str:
    """Return the result of a call, or what is wrong with it, for the model to read."""
    try:
        fruit = json.loads(arguments)["fruit"]
        price = PRICES[fruit]
    except (ValueError, KeyError, TypeError) as error:
        return f"error: {error!r}"
    with Path("looked_up.txt").open("a", encoding="utf-8") as log:
        log.write(f"{fruit}\n")
    return str(price)


def answer(question: str, most_calls: int = 4) -> str:
    """Return the model's answer to a question."""
    client = OpenAI()
    messages: list[Any] = [
        {"role": "system", "content": "Look prices up. Reply with the number only."},
        {"role": "user", "content": question},
    ]
    for _ in range(most_calls):
        reply = client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            result = run_tool(call.function.arguments) if call.type == "function" else "error: no such tool"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return ""


if __name__ == "__main__":
    print(json.dumps({"answer": answer(sys.argv[1])}))
