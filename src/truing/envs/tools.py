"""Tools that a policy may call: a plain function, with a schema from its signature and docstring.

    @truing.tool
    def lookup(name: str) -> str:
        \"\"\"The phone number of a person.\"\"\"

A tool reports a wrong call to the *model* by raising ``ToolError``: the text becomes the tool's message, and
the episode continues. Any other exception is a fault of the tool, and the rollout becomes an error.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model

from truing.errors import DataError
from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec, tool_message
from truing.utils.deep_copy import deep_copy
from truing.utils.format import did_you_mean
from truing.utils.json_schema import arguments_validator


class ToolError(Exception):
    """An invalid call; the model reads the text."""


@dataclass(frozen=True)
class Tool:
    """A tool: its description for the model, and its function."""

    spec: ToolSpec
    function: Callable[..., Any]
    arguments_model: type[BaseModel] | None = None  # the function's parameters; None if they are JSON

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for code and tests."""
        return self.function(*args, **kwargs)

    def run(self, arguments: Mapping[str, Any]) -> str:
        """Check the arguments against the schema and return the function's result, as text or JSON.

        The function gets copies: it may keep or change the lists of a call.
        """
        arguments = deep_copy(dict(arguments), f"a call of {self.spec.name}")
        problems = sorted(arguments_validator(self.spec.parameters).iter_errors(arguments), key=str)
        if problems:
            places = (".".join(map(str, problem.path)) or "arguments" for problem in problems)
            problems = "; ".join(f"{place}: {p.message}" for place, p in zip(places, problems, strict=True))
            raise ToolError(f"wrong arguments for {self.spec.name}: {problems}")
        answer = self.function(**self._typed(arguments))
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    def _typed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments in the function's types: a date from its text, an integer from 2.0."""
        if self.arguments_model is None:
            return {name: _whole(value, self.spec.parameters, name) for name, value in arguments.items()}
        try:
            read = self.arguments_model.model_validate(arguments)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise ToolError(f"wrong arguments for {self.spec.name}: {problems}") from error
        # defaults too: pydantic copies them; Python would pass the same list to every call
        return {name: getattr(read, name) for name in self.arguments_model.model_fields}


def _whole(value: Any, parameters: Mapping[str, Any], name: str) -> Any:
    """Return 2.0 as an integer if its parameter requires one; other values unchanged.

    JSON has one kind of number: 2.0 is an integer to a schema, but not an index in Python.
    """
    schema = parameters.get("properties", {}).get(name)
    parts = (schema, *schema.get("anyOf", ())) if isinstance(schema, dict) else ()
    kinds = {kind for part in parts if isinstance(part, dict) for kind in _kinds(part)}
    return int(value) if isinstance(value, float) and "integer" in kinds and "number" not in kinds else value


def _kinds(schema: Mapping[str, Any]) -> Sequence[str]:
    """Return the types of a schema, which may be one or a list."""
    named = schema.get("type", ())
    return (named,) if isinstance(named, str) else named


def tool(function: Callable[..., Any]) -> Tool:
    """Return a function as a tool: every parameter needs a type; the docstring is the description."""
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
    """Return the error for a function that cannot be a tool."""
    if not description:
        yield "no docstring"
    if inspect.iscoroutinefunction(function):
        yield "an async function"
    for p in parameters:
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD):
            yield f"the parameter {p}, which has no name to call it by"
        elif p.annotation is p.empty:
            yield f"{p.name} without a type"
        elif p.name.startswith("_"):
            yield f"{p.name}, which begins with an underscore"


ERROR_PREFIX = "Error: "
"""The prefix of an answer that reports a wrong call."""


def is_error(answer: str) -> bool:
    """Whether an answer reports a wrong call."""
    return answer.startswith(ERROR_PREFIX)


class ToolEpisode:
    """An episode in which the policy calls tools until a turn without a call."""

    def __init__(self, tools: Sequence[Tool], outcome: Callable[[], Mapping[str, Any]] = dict) -> None:
        self.tools = {tool.spec.name: tool for tool in tools}
        self._outcome = outcome

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return one message per call, in their order, or per malformed call."""
        broken = [ToolCall("error", {}) for _ in message.parse_errors]
        errors = [
            tool_message(call, i, f"{ERROR_PREFIX}{message.parse_errors[i]}") for i, call in enumerate(broken)
        ]
        return errors or [tool_message(call, i, self._run(call)) for i, call in enumerate(message.calls)]

    def outcome(self) -> Mapping[str, Any]:
        """Return the final state, for rewards."""
        return self._outcome()

    def _run(self, call: ToolCall) -> str:
        """Return the answer to one call."""
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
