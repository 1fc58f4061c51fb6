"""LangGraph's prebuilt agent, with the chat model of langchain-openai."""

import json
import sys

from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

TOWNS = {"Oslo": 4, "Rome": 21}


def lookup(town: str) -> int:
    """Return the temperature of a town."""
    return TOWNS[town]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


agent = create_react_agent(
    ChatOpenAI(model="gpt-5"), tools=[lookup, add], prompt="You are a helpful assistant"
)
result = agent.invoke({"messages": [{"role": "user", "content": sys.argv[1]}]})
print(json.dumps({"answer": result["messages"][-1].content}))
