"""MiniMax-M2: a block of calls, each an invoke with a parameter for each argument."""

from truing.chat.call_formats.shared.tagged import tagged_format
from truing.chat.call_formats.shared.tags import Tags

MINIMAX = tagged_format(
    Tags(
        before_name='\n<invoke name="',
        after_name='">\n',
        before_key='<parameter name="',
        after_key='">',
        after_value="</parameter>\n",
        after_arguments="</invoke>",
        closing="\n</minimax:tool_call>",
        multiple_calls=True,
    ),
    description="an invoke with its name, holding a parameter for each argument,"
    " within minimax:tool_call tags",
    opening="<minimax:tool_call>",
)
