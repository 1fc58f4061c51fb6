"""The grammar of a call as Python writes it: texts in single quotes, lists and objects as JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from truing.chat.call_formats.shared.scanner import Tools
from truing.chat.call_formats.shared.schema_grammar import (
    TEXT_FORMATS,
    Argument,
    check_names,
    json_rule,
    takes_text,
    text_terminals,
    tool_arguments,
)
from truing.chat.constrained.lark_literals import LarkLiterals, lark_regex
from truing.types.message import ToolSpec

NAME, KEY = r"[^\W\d][\w.-]*", r"[^\W\d][\w.$-]*"
PLAIN = r"[^'\\]"  # also a new line: LFM2.5 does not escape it
ESCAPED = r"\\['\\nr]"
ESCAPES = str.maketrans({"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r"})
WORDS = {"boolean": ('"True"', '"False"'), "null": ('"None"',)}
PYTHON = {True: "True", False: "False", None: "None"}


def call_rules(tools: Tools, spell: LarkLiterals) -> Iterator[str]:
    """Return the rules ``call0``, ``call1``, … of these tools."""
    check_names(tools, NAME, KEY)
    for i, tool in enumerate(tools):
        arguments = tool_arguments(tool)
        yield f'call{i}: {spell(tool.name + "(")} first{i}_0 ")"'
        for k, argument in enumerate(arguments):
            follows = f"argument{i}_{k}" + ("" if argument.name else f' (", " argument{i}_{k})*')
            skips = not argument.required
            yield f"first{i}_{k}: {follows} rest{i}_{k + 1}" + f" | first{i}_{k + 1}" * skips
            yield f'rest{i}_{k}: ", " {follows} rest{i}_{k + 1}' + f" | rest{i}_{k + 1}" * skips
            yield from _argument(spell, tool, argument, f"{i}_{k}")
        yield f'first{i}_{len(arguments)}: ""'
        yield f'rest{i}_{len(arguments)}: ""'


def _argument(spell: LarkLiterals, tool: ToolSpec, argument: Argument, at: str) -> Iterator[str]:
    """Return the rules of one argument."""
    if argument.name is not None:
        yield f"argument{at}: {spell(argument.name + '=')} value{at}"
    else:
        names = "|".join(lark_regex(name) for name in tool.parameters.get("properties", {}))
        yield f'argument{at}: OTHER{at} "=" value{at}'
        yield f"OTHER{at}: /[a-zA-Z_][a-zA-Z0-9_]*/" + (f" & ~/({names})/" if names else "")
    options: list[str] = []
    for j, part in enumerate(argument.parts):
        name = f"{at}_{j}"
        if takes_text(part):
            yield f'TEXT{name}: "\'" ({_text(tool, part)}) "\'"'
            options.append(f"TEXT{name}")
        elif "enum" in part:
            options += [spell(_python_text(value)) for value in part["enum"]]
        elif part["type"] in WORDS:
            options += WORDS[part["type"]]
        else:
            yield f"json{name}: {json_rule(part)}"
            options.append(f"json{name}")
    yield f"value{at}: {' | '.join(options)}"


def _text(tool: ToolSpec, part: Mapping[str, Any]) -> str:
    """Return the rule between the quotes of a text; a text with a pattern has no escapes."""
    free = text_terminals(tool, part)
    if "pattern" in part or part.get("format") in TEXT_FORMATS:
        return f"{free} & /{PLAIN}*/"
    min_length, max_length = part.get("minLength", 0), part.get("maxLength", "")
    return f"/({PLAIN}|{ESCAPED}){{{min_length},{max_length}}}/"


def _python_text(value: Any) -> str:
    """Return an enumerated value as Python writes it."""
    if isinstance(value, str):
        return f"'{value.translate(ESCAPES)}'"
    return PYTHON[value] if value is None or isinstance(value, bool) else json.dumps(value)
