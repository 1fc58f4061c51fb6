"""Pydantic AI, on chat completions."""

import json
import sys

from pydantic_ai import Agent

TOWNS = {"Oslo": 4, "Rome": 21}

agent = Agent("openai-chat:gpt-5", instructions="Be concise, reply with one sentence.")


@agent.tool_plain
def lookup(town: str) -> int:
    """Return the temperature of a town."""
    return TOWNS[town]


@agent.tool_plain
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


result = agent.run_sync(sys.argv[1])
print(json.dumps({"answer": result.output}))
