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
    called = " | ".join(f"tool{i}" for i in range(len(tools)))
    repeated = f"({spell(tags.before_name)} ({called}))" + "+" * tags.multiple_calls
    lines = [f"start: {repeated} {spell(tags.closing)}"]
    for i, tool in enumerate(tools):
        arguments = tool_arguments(tool)
        optional = ("" if one.required else "*" if one.name is None else "?" for one in arguments)
        names = " ".join(f"argument{i}_{k}{sign}" for k, sign in enumerate(optional))
        lines.append(f"tool{i}: {spell(tool.name + tags.after_name)} {names} {spell(tags.after_arguments)}")
        for k, argument in enumerate(arguments):
            lines += _argument(tags, spell, tool, argument, f"{i}_{k}")
    return "\n".join(lines)


def _argument(tags: Tags, spell: LarkLiterals, tool: ToolSpec, argument: Argument, at: str) -> Iterator[str]:
    """Return the rules of one argument."""
    if argument.name is not None:
        yield f"argument{at}: {spell(tags.before_key + argument.name + tags.after_key)} value{at}"
    else:
        known = "|".join(lark_regex(name) for name in tool.parameters.get("properties", {}))
        yield f"argument{at}: {spell(tags.before_key)} OTHER{at} {spell(tags.after_key)} value{at}"
        yield f"OTHER{at}: /{KEY}/" + (f" & ~/({known})/" if known else "")
    options: list[str] = []
    for j, part in enumerate(argument.parts):
        if takes_text(part):
            head, rest = spell.head(tags.after_value)
            free = f"/(?s:.*){lark_regex(tags.after_value.strip())}(?s:.*)/"
            ending = lark_string(head) if head else ""
            yield f"TEXT{at}_{j}: ({text_terminals(tool, part)} & ~{free}) {ending}"
            options.append(f"TEXT{at}_{j} {spell(rest)}")
        elif "enum" in part:
            listed = (one if isinstance(one, str) else json.dumps(one) for one in part["enum"])
            options += [spell(one + tags.after_value) for one in listed]
        else:
            yield f"json{at}_{j}: {json_rule(part)}"
            words = PYTHON_WORDS.get(part["type"], ()) if tags.python_words else ()
            options += [f"{one} {spell(tags.after_value)}" for one in (f"json{at}_{j}", *words)]
    yield f"value{at}: {' | '.join(options)}"
