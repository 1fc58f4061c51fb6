"""Chat templates that come with models: what a rendering makes in memory is bounded, and its date is given.

Jinja's sandbox bounds ``range`` alone. Here each operation that makes a text or a list longer, or copies one,
spends its size from a budget before it runs: operators, calls, filters, slices, and what is written.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, partial, update_wrapper
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, optimizeconst
from jinja2.runtime import str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from transformers.utils import chat_template_utils

from truing.utils.template_sizes import FILTERS, ITEM, JSON_FACTOR, METHODS, amount, extent, formatted, length

BUDGET = 2**28
"""Characters and items that the operations of a rendering may make in all, up to 4 bytes each."""

SCOPE = ("_loop_vars", "_block_vars")
"""Arguments of Jinja in each call within a loop or a block."""

_LEFT: ContextVar[list[int] | None] = ContextVar("left", default=None)

_DATE: ContextVar[datetime.date | None] = ContextVar("date", default=None)


@contextmanager
def bounded(date: datetime.date | None = None) -> Iterator[None]:
    """Bound the renderings of the block, in this thread, and let them write this date in place of today's."""
    left, day = _LEFT.set([BUDGET]), _DATE.set(date)
    try:
        yield
    finally:
        _LEFT.reset(left)
        _DATE.reset(day)


def _strftime_now(text_format: str) -> str:
    """Write the date as a template asks; transformers and vLLM give templates this function for today's."""
    date = _DATE.get()
    now = datetime.datetime.now() if date is None else datetime.datetime.combine(date, datetime.time())
    return now.strftime(text_format)


def spend(size: float) -> None:
    """Take a size from the budget; raise if it has not so much."""
    if (left := _LEFT.get()) is not None:
        if size > left[0]:
            raise jinja2.TemplateRuntimeError(f"it makes too large texts: more than {BUDGET} characters")
        left[0] -= int(size)


class _Code(CodeGenerator):
    """Lets ``~`` and slices, which Jinja computes by itself, call the environment."""

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    @optimizeconst
    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        is_slice = isinstance(node.arg, nodes.Slice)
        self.write("environment.sliced(" if is_slice else "(")
        super().visit_Getitem(node, frame)
        self.write(")")


class _Environment(ImmutableSandboxedEnvironment):
    """Spends the size of what operations make."""

    code_generator_class = _Code
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute an operator."""
        if operator == "+" and hasattr(left, "__len__"):
            spend(length(left) + length(right))
        elif operator == "%" and isinstance(left, str):
            spend(formatted(left, right))
        elif operator == "**":
            spend(extent(left) * amount(right))
        elif operator == "*":
            numbers = isinstance(left, int | float) and isinstance(right, int | float)
            unit = 1 if isinstance(left, str) or isinstance(right, str) else ITEM
            lengths = (extent(left), extent(right)) if numbers else ()
            spend(sum(lengths) if numbers else amount(left) * amount(right) * unit)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method, a macro or a function."""
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps ``format``
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            size = METHODS.get(method.__name__)
            named = {key: value for key, value in kwargs.items() if key not in SCOPE}
            spend(len(owner) if size is None else size(owner, *args, **named))
        elif isinstance(owner, Mapping | list | tuple):
            spend(length(owner))
        return super().call(__context, __obj, *args, **kwargs)

    def joined(self, parts: Iterable[Any]) -> str:
        """Compute ``~``."""
        parts = list(parts)
        spend(sum(map(extent, parts)))
        return str_join(parts)

    def sliced(self, part: Any) -> Any:
        """Take a slice, which is a copy."""
        spend(length(part))
        return part

    @staticmethod
    def concat(parts: Iterable[str]) -> str:  # type: ignore[override]  # an attribute in Jinja
        """Join what a template, a macro or a block writes."""
        parts = list(parts)
        spend(sum(map(len, parts)))
        return "".join(parts)


def _written(value: Any) -> Any:
    """Spend what an expression writes."""
    spend(extent(value))
    return value


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that spends what it makes; generators become lists, of items that have been spent."""
    passes = hasattr(function, "jinja_pass_arg")  # the first argument is Jinja's

    def filtered(*args: Any, **kwargs: Any) -> Any:
        first, value, *rest = args if passes else (None, *args)
        if isinstance(value, Iterator):
            value = list(value)
        size = FILTERS.get(name)
        spend(JSON_FACTOR * extent(value) if size is None else size(value, *rest, *kwargs.values()))
        return function(*((first,) if passes else ()), value, *rest, **kwargs)

    return update_wrapper(filtered, function)


@cache
def _environment() -> _Environment:
    """Return the environment of transformers, with its extensions, filters and functions, made bounded."""
    environment: Any = _plain_compile("").environment
    environment.__class__ = _Environment
    environment.finalize = _written
    environment.globals["strftime_now"] = _strftime_now
    environment.filters = {name: _bounded_filter(name, each) for name, each in environment.filters.items()}
    return environment


@lru_cache
def _compile(chat_template: str) -> jinja2.Template:
    return _environment().from_string(chat_template)


_plain_compile: Callable[[str], jinja2.Template] = partial(chat_template_utils._compile_jinja_template)
chat_template_utils._compile_jinja_template = _compile
