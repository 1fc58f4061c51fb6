"""MiniMax-M2: a block of calls, each an invoke with a parameter for each argument."""

from truing.chat.call_formats.shared.tagged import tagged_format
from truing.chat.call_formats.shared.tags import Tags

MINIMAX = tagged_format(
    Tags(
        begin='\n<invoke name="',
        named='">\n',
        key='<parameter name="',
        keyed='">',
        valued="</parameter>\n",
        end="</invoke>",
        closing="\n</minimax:tool_call>",
        many=True,
    ),
    form="an invoke with its name, holding a parameter for each argument, within minimax:tool_call tags",
    opening="<minimax:tool_call>",
)
