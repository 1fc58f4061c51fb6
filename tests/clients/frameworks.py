"""The agents: what the policy says to each, and what Truing makes of the calls.

An agent asks for the temperatures of two towns at once, then for their sum, and then answers.
"""

from dataclasses import dataclass

from truing.types.message import AssistantMessage, ToolCall

QUESTION = "How warm are Oslo and Rome together?"
ANSWER = "It is 25."

BOTH = tuple(ToolCall("lookup", {"town": town}) for town in ("Oslo", "Rome"))
SUM = ToolCall("add", {"a": 4, "b": 21})
THOUGHT = "<think>\nI need both.\n</think>\n\n"
CALLING = (AssistantMessage(THOUGHT, BOTH), AssistantMessage("Now the sum.", (SUM,)))

TOOLS = (*CALLING, AssistantMessage(ANSWER))
FINAL = (*CALLING, AssistantMessage(calls=(ToolCall("final_answer", {"answer": ANSWER}),)))
CODE = tuple(
    AssistantMessage(f"Thought: I need it.\n<code>\n{code}\n</code>")
    for code in (
        'oslo, rome = lookup("Oslo"), lookup("Rome")\nprint(oslo, rome)',
        "total = add(oslo, rome)\nprint(total)",
        'final_answer(f"It is {total}.")',
    )
)
BASH = tuple(
    AssistantMessage(text, (ToolCall("bash", {"command": command}),))
    for text, command in (
        (f"{THOUGHT}They are in files.", "echo 4 > oslo; echo 21 > rome; cat oslo rome"),
        ("Now the sum.", 'expr "$(cat oslo)" + "$(cat rome)"'),
        ("Done.", f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo '{ANSWER}'"),
    )
)

VARIABLES = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",  # else it sends traces to OpenAI
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks GitHub for prices
    "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_COST_TRACKING": "ignore_errors",  # else a model without a price ends it
}
"""Environment variables of the agents: ``variables`` in ``[env]``."""


@dataclass(frozen=True)
class Framework:
    """An agent of a framework, at the framework's defaults."""

    name: str  # of its script
    turns: tuple[AssistantMessage, ...] = TOOLS
    override: tuple[str, ...] = ()  # options that it asks for and must be refused otherwise
    noted: tuple[str, ...] = ()  # options that it asks for, does not get, and that are not refused
    written: tuple[str, ...] = ()  # what it gives back in another form
    edits: tuple[str, ...] = ()  # what is said of calls 2 and 3, if they do not continue the one before
    results: tuple[str, ...] = ("4", "21", "25")  # of tools, as their messages have them


LOST = ("reasoning",)
FRAMEWORKS = (
    Framework("openai_chat"),
    Framework("openai_async"),
    Framework("openai_streamed"),
    Framework("openai_responses"),
    Framework("anthropic_messages"),
    Framework("anthropic_streamed"),
    Framework("openai_agents", override=("verbosity", "reasoning_effort"), noted=("strict",)),
    Framework("openai_agents_chat", noted=("strict",), written=LOST),
    Framework("pydantic_ai_agent", noted=("strict",)),
    Framework("langgraph_react", written=LOST),
    Framework("litellm_completion"),
    Framework("mini_swe_agent", BASH, results=('"4\\n21\\n"', '"25\\n"')),
    Framework(
        "smolagents_tools",
        FINAL,
        override=("stop", "tool_choice"),
        edits=(
            "message 3 was '' and is \"Calling tools: [{'id':",
            "message 5 was 'Now the sum.' and is \"Now the sum. Calling tools: [{'id':",
        ),
        results=(),
    ),
    Framework(
        "smolagents_code",
        CODE,
        override=("stop",),
        edits=("message 3 was 'Thought: I need it. <code>", "message 5 was 'Thought: I need it. <code>"),
        results=(),
    ),
)
