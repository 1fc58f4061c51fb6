"""Seed-OSS: the form of Qwen3-Coder with tags of its own, and values without new lines around them."""

from truing.chat.call_formats.shared.tagged import tagged_format
from truing.chat.call_formats.shared.tags import Tags

SEED_OSS = tagged_format(
    Tags(
        before_name="\n<function=",
        after_name=">\n",
        before_key="<parameter=",
        after_key=">",
        after_value="</parameter>\n",
        after_arguments="</function>\n",
        closing="</seed:tool_call>",
        python_words=True,
    ),
    description="a function with its name, holding a parameter for each argument, within seed:tool_call tags",
    opening="<seed:tool_call>",
    reasoning_tags=("<seed:think>", "</seed:think>"),
)
