"""Qwen3-Coder, Qwen3.5 to 3.8 and Nemotron 3: a function, and each parameter on lines of its own."""

from truing.chat.call_formats.shared.tagged import tagged_format
from truing.chat.call_formats.shared.tags import Tags

QWEN3_CODER = tagged_format(
    Tags(
        before_name="\n<function=",
        after_name=">\n",
        before_key="<parameter=",
        after_key=">\n",
        after_value="\n</parameter>\n",
        after_arguments="</function>\n",
        closing="</tool_call>",
        python_words=True,
    ),
    description="a function with its name, holding a parameter for each argument, within tool_call tags",
    opening="<tool_call>",
)
