"""The prompt makes the policy call a tool by a name that the environment does not have."""

from contextlib import nullcontext

from dev.faults.fault import Fault
from dev.faults.healthy_runs import TOOLS

FAULT = Fault(
    name="wrong-tool-name",
    numbers=(61,),
    what="a tool is called by another name than the environment's",
    plant=nullcontext,
    expected=("TOL001",),
    changes={
        **TOOLS,
        "episode.forced_prefix": '<tool_call>\n{"name": "findFile", "arguments": {}}\n</tool_call>',
        "episode.force_rate": 1.0,
    },
)
