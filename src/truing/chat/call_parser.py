"""Parser of tool calls: the calls of a turn, and which of its characters are call syntax.

A bad call is data. The parser raises on no text: a malformed call becomes a sentence that goes back to the
model, and then no call of that turn is executed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from truing.chat.call_formats import FORMATS, CallFormat
from truing.chat.call_formats.shared.scanner import CallRegion, MalformedCall, Span
from truing.errors import ModelError
from truing.types.message import AssistantMessage, ToolCall, ToolSpec

MAX_PARSE_ERRORS = 8
"""A turn is read up to this many malformed calls; a longer list does not help the model."""


@dataclass(frozen=True)
class ParsedCalls:
    """A parsed turn."""

    message: AssistantMessage
    scaffolding: tuple[Span, ...]  # spans of call syntax, in order and disjoint


def parse_calls(
    text: str, format: str, tools: Sequence[ToolSpec] = (), *, thinking: bool = False
) -> ParsedCalls:
    """Parse the calls of a turn; its text has no stop token.

    Args:
        text: What the model wrote.
        format: A key of ``FORMATS``.
        tools: The callable tools; their schemas type the values of formats without types.
        thinking: Whether the prompt has already opened the reasoning.
    """
    family = call_format(format)
    regions, problems = _regions(text, family, tools, thinking)
    if problems or not regions:
        return ParsedCalls(AssistantMessage(family.content(text), parse_errors=tuple(problems)), ())
    outside = "".join(text[a:b] for a, b in _between(0, [(at, r.end) for at, r in regions], len(text)))
    content = family.content(outside)
    calls = tuple(call for _, region in regions for call in region.calls)
    scaffolding = tuple(span for at, region in regions for span in _between(at, region.choices, region.end))
    return ParsedCalls(AssistantMessage(content if content.strip() else "", calls), scaffolding)


def detect_format(text: str, call: ToolCall, tools: Sequence[ToolSpec] = ()) -> str | None:
    """Return the format in which a chat template wrote ``call``; None if no format reads it back.

    Args:
        text: What the template wrote between the generation prompt and the stop token.
        call: The one call of that message.
        tools: The callable tools.
    """
    for name, family in FORMATS.items():
        calls = [(parsed.name, parsed.arguments) for parsed in parse_calls(text, name, tools).message.calls]
        if calls == [(call.name, call.arguments)] and family.canonical_text(call) in text:
            return name
    return None


def call_format(name: str) -> CallFormat:
    """Return the format of that name."""
    if name not in FORMATS:
        raise ModelError("no such format of tool calls", got=name, expected=", ".join(FORMATS))
    return FORMATS[name]


def unknown_format(tool_format: str) -> ModelError:
    """Return the error about a template whose calls cannot be parsed."""
    return ModelError(
        "it is not known how this model's template writes tool calls",
        got=f"format {tool_format!r}",
        expected=f"one of {', '.join(FORMATS)}",
        remedy='set chat.tool_format, or chat.tool_prompt = "hermes" to have Truing supply the prompt',
    )


def _regions(
    text: str, family: CallFormat, tools: Sequence[ToolSpec], thinking: bool
) -> tuple[list[tuple[int, CallRegion]], list[str]]:
    """Return each call with its start, and a sentence for each malformed call."""
    regions: list[tuple[int, CallRegion]] = []
    problems: list[str] = []
    opening, closing = family.reasoning_tags
    marks = re.compile(f"(?P<thought>{re.escape(opening)})|{family.opening}")
    at = _after(text, 0, closing) if thinking else 0
    while len(problems) < MAX_PARSE_ERRORS and (mark := marks.search(text, at)):
        if mark["thought"]:
            at = _after(text, mark.end(), closing)
            continue
        try:
            region = family.read(text, mark.end(), tools)
        except MalformedCall as error:
            problems.append(
                f"Call {len(regions) + len(problems) + 1} is malformed: {error} "
                f"(character {error.at - mark.end()} of the call). Write {family.description}."
            )
            at = len(text) if family.closing is None else _after(text, error.at, family.closing)
        else:
            regions.append((mark.start(), region))
            at = region.end
    return regions, problems


def _after(text: str, at: int, tag: str) -> int:
    """Return the position after the next ``tag``, or the end of the text."""
    index = text.find(tag, at)
    return len(text) if index < 0 else index + len(tag)


def _between(start: int, spans: list[Span] | tuple[Span, ...], end: int) -> list[Span]:
    """Return the gaps between ``spans``, which are in order, from ``start`` to ``end``."""
    edges = [start, *(edge for span in spans for edge in span), end]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
