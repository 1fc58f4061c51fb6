"""GLM: a name, then an arg_key and an arg_value for each argument; GLM-4.7 and 5 write no new lines."""

from dataclasses import replace

from truing.chat.call_formats.shared.tagged import tagged_format
from truing.chat.call_formats.shared.tags import Tags

FORM = "a name, then an arg_key and an arg_value for each argument, all within tool_call tags"
LINES = Tags(
    before_name="",
    after_name="\n",
    before_key="<arg_key>",
    after_key="</arg_key>\n<arg_value>",
    after_value="</arg_value>\n",
    after_arguments="",
    closing="</tool_call>",
)
ONE_LINE = replace(LINES, after_name="", after_key="</arg_key><arg_value>", after_value="</arg_value>")

GLM45 = tagged_format(LINES, description=FORM, opening="<tool_call>")
GLM47 = tagged_format(ONE_LINE, description=FORM, opening="<tool_call>")
