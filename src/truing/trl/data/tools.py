"""TRL's tools and environments: plain functions, and methods of an object per rollout."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers.utils.chat_template_utils import get_json_schema

from truing.envs.tools import Tool, ToolError, tool
from truing.errors import DataError
from truing.types.message import ToolSpec


def trl_tool(function: Callable[..., Any]) -> Tool:
    """Return a function as a tool, described to the model as TRL does: by its Google-style docstring.

    What it raises is told to the model, as in TRL.
    """
    try:
        described = get_json_schema(function)["function"]
    except Exception as error:
        raise DataError(
            f"{getattr(function, '__name__', function)!r} cannot be a tool",
            got=error,
            expected="a function with types, and a docstring that describes it and its arguments",
        ) from error
    others = {
        key: each for key, each in described.items() if key not in ("name", "description", "parameters")
    }
    spec = ToolSpec(described["name"], described["description"], described["parameters"], others)
    return replace(tool(_told_errors(function)), spec=spec)


def _told_errors(function: Callable[..., Any]) -> Callable[..., str]:
    """Return a function that returns text, and raises ``ToolError`` for whatever the function raises."""

    @functools.wraps(function)
    def call(**arguments: Any) -> str:
        try:
            result = function(**arguments)
            return str(asyncio.run(result) if inspect.iscoroutine(result) else result)
        except Exception as error:
            if "signal only works in main thread" in str(error):
                raise DataError(
                    f"the tool {function.__name__!r} uses signal, and tools run in threads",
                    got=error,
                    remedy="leave out its time limit: a call ends after 600 seconds",
                ) from error
            raise ToolError(str(error) or type(error).__name__) from error

    return call


def environment_tools(environment: Any) -> list[Callable[..., Any]]:
    """Return the public methods of an environment but ``reset`` and ``get_reward``."""
    names = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction)]
    if "reset" not in names:
        raise DataError(
            "an environment of environment_factory has no reset()",
            got=type(environment).__name__,
            expected="a class with reset, whose other public methods are tools",
        )
    return [
        getattr(environment, name)
        for name in names
        if not name.startswith("_") and name not in ("reset", "get_reward")
    ]


def tools_given(tools: Any) -> list[Callable[..., Any]]:
    """Return the functions of ``tools``, which may be one."""
    return [tools] if callable(tools) else [*tools]


def made(factory: Callable[[], Any]) -> Any:
    """Return a new environment of a factory."""
    if not callable(factory):
        raise DataError(
            "environment_factory is not a class or function",
            got=f"{factory!r:.100}",
            expected="a class, without (): each rollout gets an object of its own",
        )
    try:
        return factory()
    except Exception as error:
        name = getattr(factory, "__name__", factory)
        raise DataError(
            f"environment_factory {name!r} raised {type(error).__name__}: {error}",
            expected="a class or function that makes an environment without arguments",
            remedy="functools.partial(Environment, argument) gives arguments",
        ) from error


def factories_of(environment_factory: Any) -> Mapping[str | None, Callable[[], Any]]:
    """Return the factories by the name in a row's ``environment`` column; None if there is one for all."""
    if environment_factory is None:
        return {}
    return environment_factory if isinstance(environment_factory, Mapping) else {None: environment_factory}


def tools_of(functions: Sequence[Callable[..., Any]]) -> list[Tool]:
    """Return functions as tools."""
    return [trl_tool(function) for function in functions]
