"""Seed-OSS: the form of Qwen3-Coder with tags of its own, and values without new lines around them."""

from truing.chat.call_formats.shared.tagged import tagged_format
from truing.chat.call_formats.shared.tags import Tags

SEED_OSS = tagged_format(
    Tags(
        begin="\n<function=",
        named=">\n",
        key="<parameter=",
        keyed=">",
        valued="</parameter>\n",
        end="</function>\n",
        closing="</seed:tool_call>",
        python_words=True,
    ),
    form="a function with its name, holding a parameter for each argument, within seed:tool_call tags",
    opening="<seed:tool_call>",
    thought=("<seed:think>", "</seed:think>"),
)
