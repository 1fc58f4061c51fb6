"""Calls with name and arguments between tags, each value as bare text or JSON.

A text is not escaped, so a value ends at the first closing tag after which the call continues: ``a < b`` and
``</b>`` are text, and so is a closing tag within a text.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from truing.chat.call_formats.shared.scanner import (
    DUPLICATE_KEY,
    CallFormat,
    CallRegion,
    MalformedCall,
    Span,
    Tools,
    Value,
    skip,
    tool_call,
)
from truing.chat.call_formats.shared.tagged_grammar import grammar
from truing.chat.call_formats.shared.tags import KEY, NAME, Tags
from truing.chat.call_formats.shared.untyped_values import schema_of, value_of
from truing.types.message import ToolCall


@dataclass(frozen=True)
class TaggedReader:
    """Reads the calls of one set of tags; the number of new lines between tags is free."""

    tags: Tags

    @cached_property
    def _parts(self) -> dict[str, re.Pattern[str]]:
        """What may stand where: white space is free but for a value's, of which one new line is the tags'."""
        tags = self.tags
        line = "\n?" if tags.padded else ""
        follows = "|".join(_loose(tag) for tag in (tags.before_key, tags.after_arguments or tags.closing))
        return {
            "head": re.compile(f"{_loose(tags.before_name)}({NAME}){_loose(tags.after_name)}{SPACE}"),
            "key": re.compile(f"{_loose(tags.before_key)}({KEY}){_loose(tags.after_key)}{line}"),
            "closed": re.compile(f"{line}{_loose(tags.after_value)}{SPACE}(?={follows})"),
            "end": re.compile(_loose(tags.after_arguments) + SPACE),
            "after": re.compile(_loose(tags.closing)),
        }

    def read(self, text: str, at: int, tools: Tools) -> CallRegion:
        """Return the calls after an opening tag, and their end."""
        calls: list[ToolCall] = []
        choices: list[Span] = []
        while True:
            call, call_choices, at = self._call(text, skip(text, at), tools)
            calls.append(call)
            choices += call_choices
            if after := self._parts["after"].match(text, at):
                return CallRegion(tuple(calls), tuple(choices), _line_end(text, after.end()))
            if not self.tags.multiple_calls:
                raise MalformedCall("expected the closing tag of the call", at)

    def _call(self, text: str, at: int, tools: Tools) -> tuple[ToolCall, list[Span], int]:
        """Return one call, the model's choices in it, and the position after it."""
        head = self._parts["head"].match(text, at)
        if head is None:
            raise MalformedCall("expected the name of a tool between its tags", at)
        values: dict[str, Value] = {}
        choices = [head.span(1)]
        at = head.end()
        while key := self._parts["key"].match(text, at):
            closing = self._parts["closed"].search(text, key.end())
            if closing is None:
                raise MalformedCall(
                    "expected the end of an argument, and then another or that of the call", at
                )
            if key[1] in values:
                raise MalformedCall(DUPLICATE_KEY, at)
            start, end = key.end(), closing.start()
            data = value_of(text[start:end], schema_of(tools, head[1], key[1]))
            values[key[1]] = Value(data, start, end)
            # an empty value is a choice too; its span is the closing tag
            choices.append((start, end) if start < end else closing.span())
            at = closing.end()
        end_tag = self._parts["end"].match(text, at)
        if end_tag is None:
            raise MalformedCall("expected an argument between its tags, or the end of the call", at)
        return tool_call(head[1], values, head.start()), choices, end_tag.end()


def tagged_format(
    tags: Tags, description: str, *, opening: str, reasoning_tags: tuple[str, str] = ("<think>", "</think>")
) -> CallFormat:
    """Return the format that writes calls between these tags."""
    return CallFormat(
        description=description,
        opening=rf"\n{{0,2}}{re.escape(opening)}",
        read=TaggedReader(tags).read,
        closing=tags.closing.strip(),
        reasoning_tags=reasoning_tags,
        canonical_text=tags.canonical_text,
        opening_tag=opening,
        grammar=lambda tools, spell: grammar(tags, tools, spell),
    )


SPACE = r"[ \t\n\r]*+"


def _loose(tag: str) -> str:
    """Return the pattern of a tag: any white space within, none around it."""
    return SPACE.join(re.escape(part) for part in re.split(r"\n|(?<=>)(?=<)", tag.strip()))


def _line_end(text: str, at: int) -> int:
    """Return the end of a turn if only a template's new line follows the closing tag, else ``at``."""
    return len(text) if text[at:] == "\n" else at
