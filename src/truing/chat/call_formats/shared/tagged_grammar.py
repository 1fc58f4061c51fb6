"""The grammar of calls between tags: each argument by its schema, in the order of the schema."""

import json
from collections.abc import Iterator

from truing.chat.call_formats.shared.scanner import Tools
from truing.chat.call_formats.shared.schema_grammar import (
    Argument,
    check_names,
    json_rule,
    takes_text,
    text_terminals,
    tool_arguments,
)
from truing.chat.call_formats.shared.tags import KEY, NAME, Tags
from truing.chat.constrained.lark_literals import LarkLiterals, lark_regex, lark_string
from truing.types.message import ToolSpec

PYTHON_WORDS = {"boolean": ('"True"', '"False"'), "null": ('"None"',)}


def grammar(tags: Tags, tools: Tools, spell: LarkLiterals) -> str:
    """Return the grammar after an opening tag: a tool's name, its arguments, the closing tag."""
    check_names(tools, NAME, KEY)
    calls = " | ".join(f"tool{i}" for i in range(len(tools)))
    repeated_call = f"({spell(tags.before_name)} ({calls}))" + "+" * tags.multiple_calls
    lines = [f"start: {repeated_call} {spell(tags.closing)}"]
    for i, tool in enumerate(tools):
        arguments = tool_arguments(tool)
        optional = ("" if each.required else "*" if each.name is None else "?" for each in arguments)
        names = " ".join(f"argument{i}_{k}{quantifier}" for k, quantifier in enumerate(optional))
        lines.append(f"tool{i}: {spell(tool.name + tags.after_name)} {names} {spell(tags.after_arguments)}")
        for k, argument in enumerate(arguments):
            lines += _argument(tags, spell, tool, argument, f"{i}_{k}")
    return "\n".join(lines)


def _argument(tags: Tags, spell: LarkLiterals, tool: ToolSpec, argument: Argument, at: str) -> Iterator[str]:
    """Return the rules of one argument."""
    if argument.name is not None:
        yield f"argument{at}: {spell(tags.before_key + argument.name + tags.after_key)} value{at}"
    else:
        names = "|".join(lark_regex(name) for name in tool.parameters.get("properties", {}))
        yield f"argument{at}: {spell(tags.before_key)} OTHER{at} {spell(tags.after_key)} value{at}"
        yield f"OTHER{at}: /{KEY}/" + (f" & ~/({names})/" if names else "")
    options: list[str] = []
    for j, part in enumerate(argument.parts):
        if takes_text(part):
            head, rest = spell.head(tags.after_value)
            free = f"/(?s:.*){lark_regex(tags.after_value.strip())}(?s:.*)/"
            ending = lark_string(head) if head else ""
            yield f"TEXT{at}_{j}: ({text_terminals(tool, part)} & ~{free}) {ending}"
            options.append(f"TEXT{at}_{j} {spell(rest)}")
        elif "enum" in part:
            values = (value if isinstance(value, str) else json.dumps(value) for value in part["enum"])
            options += [spell(value + tags.after_value) for value in values]
        else:
            yield f"json{at}_{j}: {json_rule(part)}"
            constants = PYTHON_WORDS.get(part["type"], ()) if tags.python_words else ()
            options += [f"{value} {spell(tags.after_value)}" for value in (f"json{at}_{j}", *constants)]
    yield f"value{at}: {' | '.join(options)}"
