"""Unknown tool names in prose: a model that follows the prose calls a tool that does not exist."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from truing.checks.trial_episodes import demonstration_turns
from truing.types.rollout import Task

WORD = re.compile(r"(?<![\w/@.\\-])(`?)([A-Za-z]\w*(?:[.-][A-Za-z_]\w*)*)(`?)(\(?)")
"""A word of prose, with or without code marks and call parentheses; not part of an address or a path."""

LISTED = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+[`*]*([A-Za-z]\w*)[`*]*\s*(?=[:(–—])", re.MULTILINE)
"""An entry of a list that describes names."""

PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""The words of a name, in any case style."""

SHARED = 0.6
"""Least share of common words for a name to be a tool's with words removed or added."""

MISTYPED = 0.7
"""Least share of equal letters for two words to be one mistyped word."""


class Written(IntEnum):
    """How clearly a word of prose is a name: by its letters alone, by code marks, as a call."""

    AS_WORD = 0
    AS_CODE = 1
    CALLED = 2


class UnknownToolName(NamedTuple):
    """A name in prose, its location, and the tool that it resembles."""

    name: str
    place: str
    tool: str


def unknown_tool_names(task: Task, known: Set[str]) -> Iterator[UnknownToolName]:
    """Yield names in a task's prose that resemble a tool's name but belong to no tool.

    Args:
        task: its messages, tools and demonstration are searched.
        known: the names of callable tools.
    """
    data = {word for spec in task.tools for word in _words_of(spec.parameters)}
    data |= {
        word
        for turn in demonstration_turns(task)
        for call in turn.calls
        for word in _words_of(call.arguments)
    }
    names = tuple(sorted(known))
    for location, text, described_tool in _prose(task):
        for name, found_form in _names(text).items():
            form = Written.AS_WORD if described_tool is None else found_form
            tool = "" if name in known or name in data else _similar_tool(name, names, form)
            # in a tool's own description, its name without some words is a title
            if tool and (tool != described_tool or _is_similar(name, tool, Written.AS_WORD)):
                yield UnknownToolName(name, location, tool)


def _prose(task: Task) -> Iterator[tuple[str, str, str | None]]:
    """Yield location, text and the described tool of each text about tools; "" if it describes none.

    The tool is None for text that may be data: there a name must consist of exactly a tool's words.
    """
    for message in task.messages:
        yield f"a {message['role']} message", message["content"], "" if message["role"] == "system" else None
    for spec in task.tools:
        yield f"the description of {spec.name}", spec.description, spec.name
        for name, parameter in spec.parameters.get("properties", {}).items():
            if isinstance(parameter, Mapping) and isinstance(parameter.get("description"), str):
                yield f"the description of {spec.name}.{name}", parameter["description"], spec.name
    for turn in demonstration_turns(task):
        yield "the demonstration", turn.content, None


def _names(text: str) -> dict[str, Written]:
    """Return the words of a text that look like identifiers, and how clearly they are names."""
    names: dict[str, Written] = {}
    for mark, word, _, parenthesis in WORD.findall(text):
        form = Written.CALLED if parenthesis else Written.AS_CODE if mark or "_" in word else Written.AS_WORD
        if form > Written.AS_WORD or re.search(r"[a-z][A-Z]|[.-]\w", word):
            names[word] = max(form, names.get(word, form))
    return names | dict.fromkeys((word for word in LISTED.findall(text) if word in names), Written.CALLED)


@cache
def _similar_tool(name: str, tools: Sequence[str], form: Written) -> str:
    """Return the tool that a name resembles; "" if it resembles none."""
    similar = [tool for tool in tools if _is_similar(name, tool, form)]
    return max(similar, key=lambda tool: difflib.SequenceMatcher(None, name, tool).ratio(), default="")


def _is_similar(name: str, tool: str, form: Written) -> bool:
    """Whether a name consists of a tool's words, in any order and case; as code, of nearly all of them."""
    words, others = _parts(name), _parts(tool)
    shared, fewest = set(words) & set(others), min(len(words), len(others))
    if sorted(words) == sorted(others) or "".join(words) == "".join(others):
        return True
    if fewest < 2 or form == Written.AS_WORD:
        return form == Written.CALLED and bool(shared or _has_common_prefix(name, tool))
    if len(words) == len(others):
        pairs = [(a, b) for a, b in zip(words, others, strict=True) if a != b]
        return len(pairs) == 1 and (len(words) > 2 or _is_misspelled(*pairs[0]))
    if words == others[1:] and "." not in tool and form < Written.CALLED:
        return False  # ``stock_price`` for ``get_stock_price`` is the tool's result
    return len(shared) >= 2 and len(shared) == fewest and fewest / max(len(words), len(others)) >= SHARED


def _has_common_prefix(name: str, tool: str) -> bool:
    """Whether one of two names begins with the other, of four letters or more."""
    return min(len(name), len(tool)) >= 4 and (name.startswith(tool) or tool.startswith(name))


def _is_misspelled(word: str, other: str) -> bool:
    """Whether two words are one with letters changed or omitted: ``msg`` for ``message``."""
    short, long = sorted((word, other), key=len)
    letters = iter(long)
    abbreviates = len(short) > 2 and short[0] == long[0] and all(letter in letters for letter in short)
    return abbreviates or difflib.SequenceMatcher(None, word, other).ratio() >= MISTYPED


@cache
def _parts(name: str) -> tuple[str, ...]:
    """Return the words of a name, in lower case and without a plural ending."""
    return tuple(re.sub(r"(?<=[^s])s$", "", part.lower()) for part in PARTS.findall(name))


def _words_of(data: Any) -> Iterator[str]:
    """Yield all keys and texts of a schema or of arguments: they name no tools."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield str(key)
            # a description is prose
            yield from () if key == "description" and isinstance(value, str) else _words_of(value)
    elif isinstance(data, str):
        yield data
    elif isinstance(data, Iterable):
        for item in data:
            yield from _words_of(item)
