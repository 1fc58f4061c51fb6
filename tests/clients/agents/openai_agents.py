"""The Agents SDK of OpenAI, as its README begins: on the Responses API."""

import json
import sys

from agents import Agent, Runner, function_tool

TOWNS = {"Oslo": 4, "Rome": 21}


@function_tool
def lookup(town: str) -> int:
    """Return the temperature of a town."""
    return TOWNS[town]


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


agent = Agent(name="Assistant", instructions="You are a helpful assistant", tools=[lookup, add])
result = Runner.run_sync(agent, sys.argv[1])
print(json.dumps({"answer": result.final_output}))
