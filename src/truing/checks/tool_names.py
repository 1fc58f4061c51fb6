"""Names in prose that look like a tool's and are none: a model that does as it is told calls them in vain."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from truing.checks.trial_episodes import demonstration_turns
from truing.types.rollout import Task

WORD = re.compile(r"(?<![\w/@.\\-])(`?)([A-Za-z]\w*(?:[.-][A-Za-z_]\w*)*)(`?)(\(?)")
"""A word of prose, in code marks or not, called or not; no part of an address or a path."""

LISTED = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+[`*]*([A-Za-z]\w*)[`*]*\s*(?=[:(–—])", re.MULTILINE)
"""An entry of a list that says of each name what it is."""

PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""The words that a name is made of, in whatever case they are joined."""

SHARED = 0.6
"""From which share of common words a name is a tool's with words left out, or added."""

MISTYPED = 0.7
"""From which share of equal letters two words are one that was mistyped."""


class Written(IntEnum):
    """How plainly a word of prose is a name: by its letters alone, by code marks, as what is called."""

    AS_WORD = 0
    AS_CODE = 1
    CALLED = 2


class UnknownToolName(NamedTuple):
    """A name in prose, where it stands, and the tool that it looks like."""

    name: str
    place: str
    tool: str


def unknown_tool_names(task: Task, known: Set[str]) -> Iterator[UnknownToolName]:
    """Names in what a task tells its model that look like a tool's, and that no tool has.

    Args:
        task: whose messages, tools and demonstration are read.
        known: the names that can be called.
    """
    data = {word for spec in task.tools for word in _words_of(spec.parameters)}
    data |= {
        word
        for said in demonstration_turns(task)
        for call in said.calls
        for word in _words_of(call.arguments)
    }
    names = tuple(sorted(known))
    for place, text, own in _prose(task):
        for name, written in _names(text).items():
            how = Written.AS_WORD if own is None else written
            tool = "" if name in known or name in data else _like(name, names, how)
            # in its own description a tool's name with words left out is a title
            if tool and (tool != own or _near(name, tool, Written.AS_WORD)):
                yield UnknownToolName(name, place, tool)


def _prose(task: Task) -> Iterator[tuple[str, str, str | None]]:
    """Each text that speaks of tools, where it stands, and the tool that it describes, empty for none.

    None where a text is data as often as not: there a name has to be made of the very words of a tool's.
    """
    for message in task.messages:
        yield f"a {message['role']} message", message["content"], "" if message["role"] == "system" else None
    for spec in task.tools:
        yield f"the description of {spec.name}", spec.description, spec.name
        for name, parameter in spec.parameters.get("properties", {}).items():
            if isinstance(parameter, Mapping) and isinstance(parameter.get("description"), str):
                yield f"the description of {spec.name}.{name}", parameter["description"], spec.name
    for said in demonstration_turns(task):
        yield "the demonstration", said.content, None


def _names(text: str) -> dict[str, Written]:
    """The words of a text that are shaped like identifiers, and how plainly they are names."""
    found: dict[str, Written] = {}
    for mark, word, _, opened in WORD.findall(text):
        how = Written.CALLED if opened else Written.AS_CODE if mark or "_" in word else Written.AS_WORD
        if how > Written.AS_WORD or re.search(r"[a-z][A-Z]|[.-]\w", word):
            found[word] = max(how, found.get(word, how))
    return found | dict.fromkeys((word for word in LISTED.findall(text) if word in found), Written.CALLED)


@cache
def _like(name: str, tools: Sequence[str], written: Written) -> str:
    """The tool that a name is meant to be; empty where it looks like none."""
    near = [tool for tool in tools if _near(name, tool, written)]
    return max(near, key=lambda tool: difflib.SequenceMatcher(None, name, tool).ratio(), default="")


def _near(name: str, tool: str, written: Written) -> bool:
    """Whether a name is made of a tool's words, in any order and case; as code, of nearly all of them."""
    words, others = _parts(name), _parts(tool)
    shared, fewest = set(words) & set(others), min(len(words), len(others))
    if sorted(words) == sorted(others) or "".join(words) == "".join(others):
        return True
    if fewest < 2 or written == Written.AS_WORD:
        return written == Written.CALLED and bool(shared or _begins(name, tool))
    if len(words) == len(others):
        pairs = [(a, b) for a, b in zip(words, others, strict=True) if a != b]
        return len(pairs) == 1 and (len(words) > 2 or _mistyped(*pairs[0]))
    if words == others[1:] and "." not in tool and written < Written.CALLED:
        return False  # ``stock_price`` beside ``get_stock_price`` is what the tool gives
    return len(shared) >= 2 and len(shared) == fewest and fewest / max(len(words), len(others)) >= SHARED


def _begins(name: str, tool: str) -> bool:
    """Whether one of two names begins with the other, of four letters or more."""
    return min(len(name), len(tool)) >= 4 and (name.startswith(tool) or tool.startswith(name))


def _mistyped(word: str, other: str) -> bool:
    """Whether two words are one with letters changed or left out: ``msg`` for ``message``."""
    short, long = sorted((word, other), key=len)
    letters = iter(long)
    short_for = len(short) > 2 and short[0] == long[0] and all(letter in letters for letter in short)
    return short_for or difflib.SequenceMatcher(None, word, other).ratio() >= MISTYPED


@cache
def _parts(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case and without the ending of a plural."""
    return tuple(re.sub(r"(?<=[^s])s$", "", part.lower()) for part in PARTS.findall(name))


def _words_of(data: Any) -> Iterator[str]:
    """All keys and texts of a schema or of arguments: what is named there is no tool."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield str(key)
            # a description is prose
            yield from () if key == "description" and isinstance(value, str) else _words_of(value)
    elif isinstance(data, str):
        yield data
    elif isinstance(data, Iterable):
        for each in data:
            yield from _words_of(each)
