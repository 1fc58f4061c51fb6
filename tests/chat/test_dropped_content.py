"""What a chat template does not show or write is refused by name, whatever family it is of."""

import pytest
from test_control_tokens import HARMONY, HEADERS, gptoss, llama3, qwen, speaking

from truing.chat import Chat, encode_reply, make_chat, render_prompt
from truing.chat.dropped_content import describe_parts, dropped_parts
from truing.chat.render import text_of
from truing.chat.unshown_tools import unshown_tools
from truing.errors import DataError
from truing.types.message import AssistantMessage, ToolCall, ToolSpec, tool_message
from truing.types.rollout import Task
from truing.utils.recent import MOST

ASKED = {"role": "user", "content": "Which word?"}
TOOLS = (ToolSpec("look", "Look.", {"type": "object", "properties": {"word": {"type": "string"}}}),)
ONE, TWO = ToolCall("look", {"word": "moon"}), ToolCall("look", {"word": "sun", "far": 3})

ALL = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls or () %}"
    '<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_with(*changes):
    """A chat whose template writes all, but for what was changed."""
    tokenizer, template = qwen(), ALL
    for was, now in changes:
        assert was in template
        template = template.replace(was, now)
    tokenizer.chat_template = template
    return Chat(tokenizer, (tokenizer.eos_token_id,), "hermes", None, system_role=True)


def dropped_text(chat, *messages, prompt=True):
    return describe_parts(dropped_parts(chat, messages, TOOLS, prompt=prompt))


CONVERSATION = (
    {"role": "system", "content": "Be brief."},
    ASKED,
    AssistantMessage("Let me look.", (ONE, TWO)).to_dict(),
    tool_message(ONE, 0, "white"),
    tool_message(TWO, 1, "yellow"),
    AssistantMessage("It is white.").to_dict(),
    ASKED,
)


def test_a_template_that_writes_all_loses_nothing():
    assert dropped_text(chat_with(), *CONVERSATION) == ""


@pytest.mark.parametrize(
    ("was", "now", "missing"),
    [
        ("messages %}", "messages if m.role != 'user' %}", "the text of message 2 (user)"),
        ("messages %}", "messages if m.role != 'system' %}", "the text of message 1 (system)"),
        ("messages %}", "messages if m.role != 'tool' %}", "the text of message 4 (tool)"),
        ("messages %}", "messages[-6:] %}", "the text of message 1 (system)"),
        ("m.tool_calls or ()", "(m.tool_calls or ())[:1]", "call 2 (look) of message 3 (assistant)"),
        ("m.tool_calls or ()", "()", "call 1 (look) of message 3 (assistant)"),
        ("{{ m.content }}", "{{ m.content if not m.tool_calls }}", "the text of message 3 (assistant)"),
        (
            "call.function.arguments |",
            "{'word': call.function.arguments.word} |",
            "the argument 'far' of call 2",
        ),
        ("{{ call.function.name }}", "f", "call 1 (look) of message 3"),
        ("{{ m.content }}", "{{ m.content[:4] }}", "the text of message 1 (system)"),
    ],
)
def test_each_part_that_is_left_out_is_named(was, now, missing):
    assert missing in dropped_text(chat_with((was, now)), *CONVERSATION)


def test_the_arguments_of_a_missing_call_are_not_distinguished():
    chat = chat_with(("m.tool_calls or ()", "(m.tool_calls or ())[:1]"))
    assert dropped_text(chat, *CONVERSATION) == "call 2 (look) of message 3 (assistant)"


def test_thoughts_of_earlier_turns_may_go_and_those_of_the_last_may_not():
    drops = "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}"
    chat = chat_with(("{{ m.content }}", drops))
    thinks = AssistantMessage("<think>\nhm\n</think>\n\nMoon.").to_dict()
    assert dropped_text(chat, ASKED, thinks, ASKED) == ""
    assert dropped_text(chat, ASKED, thinks, prompt=False) == "the reasoning of message 2 (assistant)"
    with pytest.raises(DataError, match="the reasoning of message 2"):
        encode_reply(chat, [ASKED], AssistantMessage("<think>\nhm\n</think>\n\nMoon."), TOOLS)
    assert len(encode_reply(chat, [ASKED], AssistantMessage("Moon."), TOOLS))


@pytest.mark.parametrize(
    ("make", "template", "said", "missing"),
    [
        (gptoss, HARMONY, AssistantMessage(calls=(ONE, TWO)), "call 2 (look) of message 2"),
        (llama3, HEADERS, AssistantMessage("Let me look.", (ONE,)), "the text of message 2"),
        (llama3, HEADERS, AssistantMessage(calls=(ONE, TWO)), "call 2 (look) of message 2"),
    ],
)
def test_a_demonstrated_turn_that_cannot_be_written_is_refused(make, template, said, missing):
    chat = speaking(make)
    assert chat.tool_format in ("gptoss", "llama3"), "else this template is not used for calls"
    with pytest.raises(DataError, match="drops a part of a demonstrated turn") as caught:
        encode_reply(chat, [ASKED], said, TOOLS)
    assert missing in str(caught.value)
    assert len(encode_reply(chat, [ASKED], AssistantMessage(calls=(ONE,)), TOOLS))


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_prompt_that_lacks_a_message_is_refused(role):
    chat = chat_with(("messages %}", f"messages if m.role != '{role}' %}}"))
    with pytest.raises(DataError, match=rf"does not show the text of message \d \({role}\)"):
        render_prompt(chat, Task("t", "f", CONVERSATION[:2], tools=TOOLS))


def test_a_second_system_message_that_a_template_drops_is_refused():
    tokenizer = qwen()
    tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}<|im_start|>{{ messages[0].content }}<|im_end|>{% endif %}"
        "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    )
    chat = make_chat(tokenizer, [tokenizer.eos_token_id])
    system = {"role": "system", "content": "Be brief."}
    assert len(render_prompt(chat, Task("t", "f", (system, ASKED))).token_ids)
    with pytest.raises(DataError, match=r"message 2 \(system\)"):
        render_prompt(chat, Task("t", "f", (system, system, ASKED)))


NESTED = ToolSpec(
    "send",
    "Send it.",
    {
        "type": "object",
        "properties": {
            "to": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"description": "In full."}}},
            },
            "text": {"type": "string", "description": "What it says.", "enum": ["to", "In full."]},
        },
        "required": ["to"],
    },
)


@pytest.mark.parametrize(
    ("now", "missing"),
    [
        ("{{ tools | tojson }}", []),
        ("", ["the tool send", "the description of send", "send.to", "send.text"]),
        (
            "{% for t in tools %}{{ t.function.name }}{{ t.function.parameters | tojson }}{% endfor %}",
            ["the description of send"],
        ),
        (
            "{% for t in tools %}{{ t.function.name }}: {{ t.function.description }}({{ "
            "t.function.parameters.properties | join(', ') }}){% endfor %}",
            [],
        ),
        ("{{ tools[0].function.name }}", ["the description of send", "send.to", "send.text"]),
    ],
)
def test_tools_that_a_prompt_lacks_are_refused_by_name(now, missing):
    chat = chat_with(("{{ tools | tojson }}", now))
    needed = [str(part) for part in unshown_tools(chat, [ASKED], (NESTED,)) if part.needed]
    assert needed == missing
    task = Task("t", "f", (ASKED,), tools=(NESTED,))
    if not missing:
        assert len(render_prompt(chat, task).token_ids)
        return
    with pytest.raises(DataError, match="leaves tools out of the prompt"):
        render_prompt(chat, task)


def test_descriptions_at_any_depth_are_sought():
    shown = "{{ tools | tojson }}"
    flat = "{% for t in tools[0].function.parameters.properties %}{{ t }}{% endfor %}"
    assert unshown_tools(chat_with(), [ASKED], (NESTED,)) == []
    lost = unshown_tools(chat_with((shown, flat)), [ASKED], (NESTED,))
    assert {str(part) for part in lost if not part.needed} == {
        "send.to.name",
        "the description of send.to.name",
        "the description of send.text",
    }


@pytest.mark.parametrize("required", [[{}], [[1]], "to", 1])
def test_a_schema_may_require_what_is_no_name(required):
    odd = ToolSpec("send", "Send it.", {"type": "object", "properties": {}, "required": required})
    assert unshown_tools(chat_with(("{{ tools | tojson }}", "{{ tools | tojson }}")), [ASKED], (odd,)) == []


def test_what_was_searched_is_kept_for_the_last_sets_of_tools_alone():
    chat = chat_with(("{{ tools | tojson }}", "{{ tools | tojson }}"))
    for i in range(MOST + 10):
        properties = {f"p{k}": {} for k in range(i)}
        unshown_tools(chat, [ASKED], (ToolSpec("send", "Send it.", {"properties": properties}),))
        dropped_parts(chat, [ASKED] * (1 + i % 20) + [{"role": "user", "content": "", "name": str(i)}])
    assert len(chat.unshown_tools) == len(chat.dropped_parts_cache) == MOST


def test_tools_that_stand_in_a_system_message_which_a_later_one_replaces_are_refused():
    """As distilled DeepSeek R1 has it: the last system message is the only one."""
    tokenizer = qwen()
    tokenizer.chat_template = (
        "{% set ns = namespace(s='') %}"
        "{% for m in messages if m.role == 'system' %}{% set ns.s = m.content %}"
        "{% endfor %}{{ ns.s }}{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n"
        "{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    )
    chat = make_chat(tokenizer, [tokenizer.eos_token_id])
    system = {"role": "system", "content": "Be brief."}
    assert len(render_prompt(chat, Task("t", "f", (system, ASKED), tools=TOOLS)).token_ids)
    with pytest.raises(DataError, match="leaves tools out of the prompt"):
        render_prompt(chat, Task("t", "f", (ASKED, system), tools=TOOLS))


@pytest.mark.parametrize("style", ["hermes", "brief"])
def test_a_tool_whose_schema_names_no_properties_is_shown(style):
    tokenizer = qwen()
    chat = make_chat(tokenizer, [tokenizer.eos_token_id], tool_prompt=style)
    task = Task("t", "f", (ASKED,), tools=(ToolSpec("now", "The time.", {"type": "object"}),))
    assert "now" in text_of(chat, render_prompt(chat, task).token_ids)
