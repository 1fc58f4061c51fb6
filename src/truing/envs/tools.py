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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model

from truing.errors import DataError
from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec, tool_message
from truing.utils.deep_copy import deep_copy
from truing.utils.format import did_you_mean


class ToolError(Exception):
    """A call that cannot be carried out; its text is what the model reads."""


@dataclass(frozen=True)
class Tool:
    """A tool: what the model is told of it, and what runs when it calls."""

    spec: ToolSpec
    function: Callable[..., Any]
    arguments_model: type[BaseModel] | None = (
        None  # what the function's parameters are; None where they are JSON
    )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for code and tests."""
        return self.function(*args, **kwargs)

    def run(self, arguments: Mapping[str, Any]) -> str:
        """Check the arguments against the schema and call; text stays, anything else becomes JSON.

        The function gets a copy: it may keep the lists of a call, or change them.
        """
        arguments = deep_copy(dict(arguments), f"a call of {self.spec.name}")
        problems = sorted(Draft202012Validator(self.spec.parameters).iter_errors(arguments), key=str)
        if problems:
            places = (".".join(map(str, problem.path)) or "arguments" for problem in problems)
            told = "; ".join(f"{place}: {p.message}" for place, p in zip(places, problems, strict=True))
            raise ToolError(f"wrong arguments for {self.spec.name}: {told}")
        answer = self.function(**self._typed(arguments))
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    def _typed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments in the types of the function: a date from its text, an integer from 2.0."""
        if self.arguments_model is None:
            return {name: _whole(value, self.spec.parameters, name) for name, value in arguments.items()}
        try:
            read = self.arguments_model.model_validate(arguments)
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise ToolError(f"wrong arguments for {self.spec.name}: {told}") from error
        # defaults too: pydantic copies them, where Python would hand the same list to every call
        return {name: getattr(read, name) for name in self.arguments_model.model_fields}


def _whole(value: Any, parameters: Mapping[str, Any], name: str) -> Any:
    """A number such as 2.0 as the integer that its parameter asks for; anything else as it is.

    JSON has one kind of number: 2.0 is an integer to a schema, and no index to Python.
    """
    asked = parameters.get("properties", {}).get(name)
    parts = (asked, *asked.get("anyOf", ())) if isinstance(asked, dict) else ()
    kinds = {kind for part in parts if isinstance(part, dict) for kind in _kinds(part)}
    return int(value) if isinstance(value, float) and "integer" in kinds and "number" not in kinds else value


def _kinds(schema: Mapping[str, Any]) -> Sequence[str]:
    """The types that a schema names: one, or a list of them."""
    named = schema.get("type", ())
    return (named,) if isinstance(named, str) else named


def tool(function: Callable[..., Any]) -> Tool:
    """Make a tool of a function: every parameter has a name and a type, the docstring is its description."""
    description = inspect.getdoc(function)
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    if faults := list(_unfit(function, description, parameters)):
        raise DataError(
            f"{function.__name__!r} cannot be a tool",
            got="; ".join(faults),
            expected="a docstring, and parameters that have types and are called by name",
        )
    fields: dict[str, Any] = {
        p.name: (p.annotation, ... if p.default is p.empty else p.default) for p in parameters
    }
    try:
        types = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
        schema = types.model_json_schema()
    except PydanticUserError as error:
        raise DataError(
            f"{function.__name__!r} cannot be a tool", got=error.message, expected="types that JSON can hold"
        ) from error
    del schema["title"]
    for part in schema.get("properties", {}).values():
        part.pop("title", None)
    return Tool(ToolSpec(function.__name__, description or "", schema), function, types)


def _unfit(
    function: Callable[..., Any], description: str | None, parameters: Iterable[inspect.Parameter]
) -> Iterator[str]:
    """Why a function cannot be a tool."""
    if not description:
        yield "no docstring"
    if inspect.iscoroutinefunction(function):
        yield "an async function, whose answer nobody awaits"
    for p in parameters:
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD):
            yield f"the parameter {p}, which has no name to call it by"
        elif p.annotation is p.empty:
            yield f"{p.name} without a type"
        elif p.name.startswith("_"):
            yield f"{p.name}, which begins with an underscore"


ERROR_PREFIX = "Error: "
"""How an answer begins that tells the model what is wrong with its call."""


def is_error(answer: str) -> bool:
    """Whether an answer tells that a call was refused."""
    return answer.startswith(ERROR_PREFIX)


class ToolEpisode:
    """An episode in which the policy calls tools until it speaks without calling one."""

    def __init__(self, tools: Sequence[Tool], outcome: Callable[[], Mapping[str, Any]] = dict) -> None:
        self.tools = {tool.spec.name: tool for tool in tools}
        self._outcome = outcome

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """One message per call, in their order, or per call that could not be read."""
        broken = [ToolCall("error", {}) for _ in message.parse_errors]
        told = [
            tool_message(call, i, f"{ERROR_PREFIX}{message.parse_errors[i]}") for i, call in enumerate(broken)
        ]
        return told or [tool_message(call, i, self._run(call)) for i, call in enumerate(message.calls)]

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
                    [
                        f"{ERROR_PREFIX}there is no tool {call.name!r}, only {known}.",
                        did_you_mean(call.name, self.tools),
                    ],
                )
            )
        try:
            return self.tools[call.name].run(call.arguments)
        except ToolError as error:
            return f"{ERROR_PREFIX}{error}"
