"""Names in prose that look like a tool's and are none."""

import json

import pytest
from shop import PRICES, Shop, price

from truing.checks.tool_names import unknown_tool_names
from truing.types.message import AssistantMessage, ToolCall, ToolSpec
from truing.types.rollout import Task

NAMES = "tool names are one set"

TOOLS = (
    "send_slack_message",
    "search_email",
    "get_order_details",
    "list_files",
    "calendar.create_event",
    "look",
)


def spec(name, description="Does what its name says.", **properties):
    return ToolSpec(name, description, {"type": "object", "properties": properties})


def unknown_names(*, system="", user="Which?", tools=(), demonstration=()):
    messages = ({"role": "system", "content": system}, {"role": "user", "content": user})
    made = (*map(spec, TOOLS), *tools)
    task = Task("t", "f", messages, tools=made, demonstration=demonstration)
    return [(each.name, each.tool) for each in unknown_tool_names(task, {tool.name for tool in made})]


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("slack_send_message", "send_slack_message"),
        ("send_message_slack", "send_slack_message"),
        ("sendSlackMessage", "send_slack_message"),
        ("SendSlackMessage", "send_slack_message"),
        ("send-slack-message", "send_slack_message"),
        ("slack.send_message", "send_slack_message"),
        ("send_slack_messages", "send_slack_message"),
        ("send_slack_msg", "send_slack_message"),
        ("send_message", "send_slack_message"),
        ("post_slack_message", "send_slack_message"),
        ("`sendslackmessage`", "send_slack_message"),
        ("search_emails", "search_email"),
        ("search_mail", "search_email"),
        ("calendar_create_event", "calendar.create_event"),
        ("create_event", "calendar.create_event"),
        ("list_file", "list_files"),
        ("lookup(word)", "look"),
        ("order_details(id)", "get_order_details"),
    ],
)
@pytest.mark.parametrize(
    "prose", ["You can call {} for that.", "Tools:\n- {}: does it", "First **{}**, then stop."]
)
def test_a_tool_that_the_system_message_names_otherwise(name, tool, prose):
    assert [right for _, right in unknown_names(system=prose.format(name))] == [tool]


@pytest.mark.parametrize(
    "text",
    [
        "Call send_slack_message, then `list_files` and calendar.create_event(name). Have a look(word).",
        "The user_id and the order_status of an order stand in README.md, or see https://a.b/send_message.",
        "A well-known e-mail, a follow-up of mid-May, text-to-speech, U.S. law, 3.14, v1.2, iPhone.",
        "It returns slack_message and `order_details`, as JSON.",
        "Send a slack message, search email, get order details, list files.",
        "Write to ann.lee@firm.com or /etc/slack_send_message about no_show and credit_card_3.",
    ],
)
def test_prose_that_names_no_other_tool(text):
    assert unknown_names(system=text) == []


def test_parameters_values_and_arguments_are_no_tools():
    tool = spec("count", "Counts.", get_order_detail={"enum": ["send_message"], "description": "of an order"})
    demonstration = (
        AssistantMessage(calls=(ToolCall("count", {"get_order_detail": "message_slack_send"}),)),
    )
    system = "Give get_order_detail, send_message or message_slack_send."
    assert unknown_names(system=system, tools=(tool,), demonstration=demonstration) == []
    assert len(unknown_names(system=system)) == 3, "else this tests nothing"


def test_what_the_user_and_a_demonstration_say_is_read_closely():
    """There, a name has to be made of the very words of a tool's."""
    assert unknown_names(user="send_message said order_details") == []
    assert unknown_names(user="use slack_send_message") == [("slack_send_message", "send_slack_message")]
    assert unknown_names(demonstration=(AssistantMessage("I use sendSlackMessage."),)) == [
        ("sendSlackMessage", "send_slack_message")
    ]


def test_descriptions_of_tools_name_other_tools():
    about = spec(
        "reply", "Answers. Use slack_send_message for channels.", to={"description": "from search_mail"}
    )
    assert unknown_names(tools=(about,)) == [
        ("slack_send_message", "send_slack_message"),
        ("search_mail", "search_email"),
    ]
    title = spec("get_average_session_duration", "Gives average_session_duration.")
    assert unknown_names(tools=(title,)) == []


def test_check_finds_the_name_once_and_reports_the_tool(report):
    asked = {"role": "system", "content": "Use `find_price(item)` or price."}

    class Misnamed(Shop):
        def task(self, item):
            made = super().task(item)
            return Task(**vars(made) | {"messages": (asked, *made.messages)})

    shop = Misnamed(tools=(price.spec,))
    result = report(shop)[NAMES]
    (finding,) = result.findings
    assert finding.where == next(iter(PRICES))
    assert finding.what == "a system message names a tool that does not exist"
    assert (finding.got, finding.expected) == ("'find_price'", "price")
    assert finding.remedy.startswith("did you mean 'price'?")


def test_published_environments_name_no_tool_otherwise(data):
    """Policies, descriptions and conversations of tau-bench, BFCL, AgentDojo and Glaive."""
    counted = 0
    for domain in ("retail", "airline"):
        policy = (data / f"tau_bench/{domain}_policy.md").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in (data / "tau_bench/tools.jsonl").open(encoding="utf-8")]
        tools = tuple(ToolSpec(**row["function"]) for row in rows if row["domain"] == domain)
        task = Task(domain, "f", ({"role": "system", "content": policy},), tools=tools)
        assert list(unknown_tool_names(task, {tool.name for tool in tools})) == []
        counted += 1
    for line in (data / "agentdojo/tools.jsonl").open(encoding="utf-8"):
        row = json.loads(line)["function"]
        task = Task("t", "f", (), tools=(ToolSpec(row["name"], row["description"], row["parameters"]),))
        assert list(unknown_tool_names(task, {row["name"]})) == []
        counted += 1
    for line in (data / "glaive_toolcall/conversations.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        given = json.loads(row["tools"]) if isinstance(row.get("tools"), str) else row.get("tools") or []
        tools = tuple(
            ToolSpec(tool["name"], tool.get("description") or "", tool.get("parameters") or {})
            for tool in given
        )
        demonstration = tuple({"role": "system", "content": turn["value"]} for turn in row["conversations"])
        assert (
            list(
                unknown_tool_names(Task("t", "f", demonstration, tools=tools), {tool.name for tool in tools})
            )
            == []
        )
        counted += 1
    assert counted >= 12
