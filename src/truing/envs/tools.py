"""Tools that a policy may call: a plain function, with a schema from its signature and docstring.

    @truing.tool
    def lookup(name: str) -> str:
        \"\"\"The phone number of a person.\"\"\"

A tool tells the *model* of a wrong call by raising ``ToolError``: the text goes back as the tool's
message, and the episode goes on. Anything else that it raises is a fault of the tool, and the rollout is
recorded as an error.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from pydantic import ConfigDict, create_model

from truing.envs.names import nearest
from truing.errors import DataError
from truing.messages import Message, Said, ToolCall, ToolSpec, answer_to


class ToolError(Exception):
    """A call that cannot be carried out; its text is what the model reads."""


@dataclass(frozen=True)
class Tool:
    """A tool: what the model is told of it, and what runs when it calls."""

    spec: ToolSpec
    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for code and tests."""
        return self.function(*args, **kwargs)

    def run(self, arguments: Mapping[str, Any]) -> str:
        """Check the arguments against the schema and call; text stays, anything else becomes JSON."""
        problems = sorted(Draft202012Validator(self.spec.parameters).iter_errors(dict(arguments)), key=str)
        if problems:
            places = (".".join(map(str, problem.path)) or "arguments" for problem in problems)
            told = "; ".join(f"{place}: {p.message}" for place, p in zip(places, problems, strict=True))
            raise ToolError(f"wrong arguments for {self.spec.name}: {told}")
        # JSON has one kind of number: 2.0 is an integer to a schema, and no index to Python
        whole = {name: _whole(value, self.spec.parameters, name) for name, value in arguments.items()}
        answer = self.function(**whole)
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _whole(value: Any, parameters: Mapping[str, Any], name: str) -> Any:
    """A number such as 2.0 as the integer that its parameter asks for; anything else as it is."""
    asked = parameters.get("properties", {}).get(name, {})
    kinds = {part.get("type") for part in (asked, *asked.get("anyOf", ())) if isinstance(part, dict)}
    return int(value) if isinstance(value, float) and "integer" in kinds and "number" not in kinds else value


def tool(function: Callable[..., Any]) -> Tool:
    """Make a tool of a function: every parameter has a type, the docstring is its description."""
    description = inspect.getdoc(function)
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    untyped = [
        p.name for p in parameters if p.annotation is p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if not description or untyped:
        got = f"parameters without a type: {', '.join(untyped)}" if untyped else "no docstring"
        raise DataError(
            f"{function.__name__!r} cannot be a tool", got=got, expected="typed parameters and a docstring"
        )
    fields: dict[str, Any] = {
        p.name: (p.annotation, ... if p.default is p.empty else p.default) for p in parameters
    }
    model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    schema = model.model_json_schema()
    del schema["title"]
    for part in schema.get("properties", {}).values():
        part.pop("title", None)
    return Tool(ToolSpec(function.__name__, description, schema), function)


class ToolEpisode:
    """An episode in which the policy calls tools until it speaks without calling one."""

    def __init__(self, tools: Sequence[Tool], outcome: Callable[[], Mapping[str, Any]] = dict) -> None:
        self.tools = {tool.spec.name: tool for tool in tools}
        self._outcome = outcome

    def reply(self, said: Said) -> Sequence[Message]:
        """One message per call, in their order, or per call that could not be read."""
        broken = [ToolCall("error", {}) for _ in said.problems]
        told = [answer_to(call, i, f"Error: {said.problems[i]}") for i, call in enumerate(broken)]
        return told or [answer_to(call, i, self._run(call)) for i, call in enumerate(said.calls)]

    def outcome(self) -> Mapping[str, Any]:
        """The world's state, as graders see it."""
        return self._outcome()

    def _run(self, call: ToolCall) -> str:
        """What the model is told of one call."""
        if call.name not in self.tools:
            known = ", ".join(self.tools)
            return " ".join(
                filter(
                    None,
                    [f"Error: there is no tool {call.name!r}, only {known}.", nearest(call.name, self.tools)],
                )
            )
        try:
            return self.tools[call.name].run(call.arguments)
        except ToolError as error:
            return f"Error: {error}"
