"""Hugging Face's smolagents, with an agent that calls tools."""

import json
import os
import sys

from smolagents import OpenAIModel, ToolCallingAgent, tool

TOWNS = {"Oslo": 4, "Rome": 21}


@tool
def lookup(town: str) -> int:
    """Return the temperature of a town.

    Args:
        town: The name of the town.
    """
    return TOWNS[town]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


model = OpenAIModel(
    model_id="gpt-4o", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
)
agent = ToolCallingAgent(tools=[lookup, add], model=model)
print(json.dumps({"answer": agent.run(sys.argv[1])}))
