"""Faults of a chat template, one planted for each check."""

import pytest
import torch
from shop import PRICES, Quiz, Shop

from truing.chat import Chat, render_prompt
from truing.checks import report_json

TASKS = len(PRICES)
OPENS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
CONTENT = "{{ message['content'] }}"
ENDS = CONTENT + "<|im_end|>"
FIRST = "{% for message in messages %}"


def test_a_prompt_that_opens_no_turn_is_found(report, chat_with):
    (finding,) = report(Quiz(), chat_with((OPENS, "")))["the prompt opens the assistant's turn"].findings
    assert finding.got.startswith(r"'<|im_start|>user\nhello<|im_end|>\n'")
    assert "<|im_start|>assistant" in finding.expected


def test_a_template_that_opens_no_turn_at_all_is_no_fault(report, chat_with):
    """As Mistral's: the end of a request is where an answer begins."""
    chat = chat_with()
    chat.tokenizer.chat_template = (
        "{% for m in messages %}{% if m['role'] == 'user' %}[{{ m['content'] }}]"
        "{% else %}{{ m['content'] }}<|im_end|>{% endif %}{% endfor %}"
    )
    assert report(Quiz(), chat)["the prompt opens the assistant's turn"].findings == ()


def test_a_template_that_writes_no_stop_is_found(report, chat_with):
    results = report(Shop(), chat_with((ENDS, CONTENT)))
    assert [each.what for each in results["the template writes a stop"].findings] == [
        "it writes no stop token after an answer",
        "it writes no stop token after a call",
    ]


def test_a_demonstration_without_the_templates_ending_is_found(report, chat_with):
    findings = report(Quiz(), chat_with((ENDS, CONTENT)))[
        "demonstrations read as the template writes them"
    ].findings
    assert len(findings) == TASKS
    assert (findings[0].got, findings[0].expected) == (r"'\n<|im_end|>'", "''")


def test_a_stop_that_is_not_trained_is_found(report, monkeypatch):
    """Nothing but a fault of Truing itself does this."""
    monkeypatch.setattr(
        "truing.algos.flatten.supervised_mask", lambda origin: torch.zeros_like(origin).bool()
    )
    findings = report(Shop())["the stop is trained"].findings
    assert len(findings) == 2 * TASKS
    assert findings[0].got.endswith("not trained")


def test_an_sft_prompt_that_is_not_that_of_rl_is_found(report, monkeypatch):
    """Nor this."""
    one = Quiz().task("red pen")
    monkeypatch.setattr("truing.checks.template.render_prompt", lambda chat, task: render_prompt(chat, one))
    findings = report(Quiz())["SFT and RL show one prompt"].findings
    assert [each.where for each in findings] == [item for item in PRICES if item != "red pen"]
    assert findings[0].got != findings[0].expected


@pytest.mark.parametrize(("before", "count"), [("", 0), ("<|im_start|>", TASKS)])
def test_a_doubled_bos_is_found(report, chat_with, before, count):
    """A turn marker as BOS, as SmolLM2 has it, is no fault; two at the start are."""
    chat = chat_with((FIRST, before + FIRST))
    chat.tokenizer.bos_token = "<|im_start|>"
    result = report(Quiz(), chat)["BOS is not doubled"]
    assert (result.count, len(result.findings), result.missing) == (TASKS, count, ())


@pytest.mark.parametrize(
    ("shown", "lacking"),
    [
        ("", "it lacks price, price.item"),
        ("{% for tool in tools or () %}{{ tool['function']['name'] }}{% endfor %}", "it lacks price.item"),
        ("{{ tools }}", None),
    ],
)
def test_a_tool_that_the_prompt_does_not_show_is_found(report, chat_with, shown, lacking):
    chat = chat_with((FIRST, shown + FIRST))
    native = Chat(chat.tokenizer, chat.stop_ids, "hermes", None, system_role=True)
    findings = report(Shop(), native)["tools are shown in full"].findings
    assert {each.got for each in findings} == ({lacking} if lacking else set())


def test_a_template_that_refuses_tools_is_reported_once_by_the_rollouts(report, chat_with):
    chat = chat_with((FIRST, "{{ raise_exception('no tools') if tools }}" + FIRST))
    native = Chat(chat.tokenizer, chat.stop_ids, "hermes", None, system_role=True)
    results = report(Shop(), native)
    assert results["tools are shown in full"].findings == ()
    assert {each.what for each in results["rollouts can be played and graded"].findings} == {
        "the chat template refuses these messages"
    }


def test_an_answer_that_no_prompt_shows_is_found(report, chat_with):
    asked = "{% for message in messages if message['role'] != 'tool' %}"
    calls = (
        "{% for call in message['tool_calls'] or () %}<tool_call>{{ call['function'] | tojson }}</tool_call>"
    )
    chat = chat_with((FIRST, asked), (CONTENT, f"{CONTENT}{calls}{{% endfor %}}"))
    deaf = Chat(chat.tokenizer, chat.stop_ids, "hermes", None, system_role=True)
    (finding,) = report(Shop(), deaf)["tool answers are shown"].findings
    assert finding.got == "2 of 2 answers are in no prompt"
    assert report(Shop(), chat_with())["tool answers are shown"].count == 2


def test_a_turn_that_is_re_rendered_is_noted_and_no_fault(report, chat_with):
    past = "{{ message['content'] if loop.last or message['role'] != 'assistant' else '(cut)' }}"
    result = report(Shop(), chat_with((CONTENT, past)))["turns extend each other"]
    assert [note.partition(":")[0] for note in result.notes] == ["turn 2 restarts", "turn 3 restarts"]
    assert "(cut)" in result.notes[0]
    assert result.findings == ()


def test_a_template_that_refuses_a_role_is_found(report, chat_with):
    refusal = "{{ raise_exception('no answers') if message['role'] == 'assistant' }}"
    results = report_json(report(Shop(), chat_with((FIRST, FIRST + refusal))))
    assert {each["what"] for each in results["findings"]} == {"the chat template refuses these messages"}
    assert {each["check"] for each in results["findings"]} == {
        "rollouts can be played and graded",
        "the prompt opens the assistant's turn",
        "the template writes a stop",
    }


SHOWN = "every message is shown"
LATER = "later prompts show every message"


def test_a_prompt_without_the_users_message_is_found(report, chat_with):
    findings = report(
        Quiz(), chat_with((FIRST, "{% for message in messages if message['role'] != 'user' %}"))
    )[SHOWN].findings
    assert [each.where for each in findings] == list(PRICES)
    assert findings[0].got == "the prompt does not show the text of message 1 (user)"


@pytest.mark.parametrize("alters", ["[:9]", "| upper", "| replace('a', 'e')"])
def test_a_message_that_is_shown_with_other_text_is_found(report, chat_with, alters):
    findings = report(Quiz(), chat_with((CONTENT, CONTENT.replace(" }}", f" {alters} }}}}"))))[SHOWN].findings
    assert len(findings) == TASKS
    assert "message 1 (user)" in findings[0].got


def test_a_message_that_a_later_prompt_lacks_is_found(report, chat_with):
    """As Mistral's system message, which no prompt shows that ends in an answer of a tool."""
    gone = "{{ message['content'] if messages | length < 4 or loop.index != 2 }}"
    results = report(Shop(), chat_with((CONTENT, gone)))
    assert results[SHOWN].findings == ()
    assert len(results[LATER].findings) == TASKS
    assert results[LATER].findings[0].got == "the prompt of turn 2 does not show the text of message 1 (user)"


def test_correct_templates_show_every_message(report, chat_with):
    results = report(Shop(), chat_with())
    assert (results[SHOWN].count, results[SHOWN].findings) == (TASKS, ())
    assert (results[LATER].count, results[LATER].findings) == (TASKS, ())


def test_a_demonstration_that_cannot_be_written_is_found(report, chat_with):
    chat = chat_with((CONTENT, "{{ message['content'].split('<tool_call>')[0] }}"))
    findings = report(Shop(), chat)["rollouts can be played and graded"].findings
    assert findings[0].what == "the chat template drops a part of a demonstrated turn"
    assert findings[0].got == "it drops call 1 (price) of message 2 (assistant)"
