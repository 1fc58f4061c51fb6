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


def test_a_prompt_that_opens_no_turn_is_found(report, spoken):
    (finding,) = report(Quiz(), spoken((OPENS, "")))["the prompt opens the assistant's turn"].findings
    assert finding.got.startswith(r"'<|im_start|>user\nhello<|im_end|>\n'")
    assert "<|im_start|>assistant" in finding.expected


def test_a_template_that_opens_no_turn_at_all_is_no_fault(report, spoken):
    """As Mistral's: the end of a request is where an answer begins."""
    chat = spoken()
    chat.tokenizer.chat_template = (
        "{% for m in messages %}{% if m['role'] == 'user' %}[{{ m['content'] }}]"
        "{% else %}{{ m['content'] }}<|im_end|>{% endif %}{% endfor %}"
    )
    assert report(Quiz(), chat)["the prompt opens the assistant's turn"].findings == ()


def test_a_template_that_writes_no_stop_is_found(report, spoken):
    told = report(Shop(), spoken((ENDS, CONTENT)))
    assert [each.what for each in told["the template writes a stop"].findings] == [
        "it writes no stop token after an answer",
        "it writes no stop token after a call",
    ]


def test_a_demonstration_that_the_template_would_end_otherwise_is_found(report, spoken):
    findings = report(Quiz(), spoken((ENDS, CONTENT)))[
        "demonstrations read as the template writes them"
    ].findings
    assert len(findings) == TASKS
    assert (findings[0].got, findings[0].expected) == (r"'\n<|im_end|>'", "''")


def test_a_stop_that_is_not_trained_is_found(report, monkeypatch):
    """Nothing but a fault of Truing itself does this."""
    monkeypatch.setattr(
        "truing.rollouts.flatten.supervised_mask", lambda origin: torch.zeros_like(origin).bool()
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
def test_a_doubled_bos_is_found(report, spoken, before, count):
    """A turn marker as BOS, as SmolLM2 has it, is no fault; two at the start are."""
    chat = spoken((FIRST, before + FIRST))
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
def test_a_tool_that_the_prompt_does_not_show_is_found(report, spoken, shown, lacking):
    chat = spoken((FIRST, shown + FIRST))
    native = Chat(chat.tokenizer, chat.stop_ids, "hermes", None, system_role=True)
    findings = report(Shop(), native)["tools are shown in full"].findings
    assert {each.got for each in findings} == ({lacking} if lacking else set())


def test_a_template_that_refuses_tools_is_told_once_by_the_attempts(report, spoken):
    chat = spoken((FIRST, "{{ raise_exception('no tools') if tools }}" + FIRST))
    native = Chat(chat.tokenizer, chat.stop_ids, "hermes", None, system_role=True)
    told = report(Shop(), native)
    assert told["tools are shown in full"].findings == ()
    assert {each.what for each in told["attempts can be played and graded"].findings} == {
        "the chat template refuses these messages"
    }


def test_an_answer_that_no_prompt_shows_is_found(report, spoken):
    asked = "{% for message in messages if message['role'] != 'tool' %}"
    calls = (
        "{% for call in message['tool_calls'] or () %}<tool_call>{{ call['function'] | tojson }}</tool_call>"
    )
    chat = spoken((FIRST, asked), (CONTENT, f"{CONTENT}{calls}{{% endfor %}}"))
    deaf = Chat(chat.tokenizer, chat.stop_ids, "hermes", None, system_role=True)
    (finding,) = report(Shop(), deaf)["tool answers are shown"].findings
    assert finding.got == "2 of 2 answers are in no prompt"
    assert report(Shop(), spoken())["tool answers are shown"].count == 2


def test_turns_that_are_written_anew_are_told_and_no_fault(report, spoken):
    past = "{{ message['content'] if loop.last or message['role'] != 'assistant' else '(cut)' }}"
    result = report(Shop(), spoken((CONTENT, past)))["turns extend each other"]
    assert [note.partition(":")[0] for note in result.notes] == ["turn 2 restarts", "turn 3 restarts"]
    assert "(cut)" in result.notes[0]
    assert result.findings == ()


def test_a_template_that_refuses_a_role_is_found(report, spoken):
    refusal = "{{ raise_exception('no answers') if message['role'] == 'assistant' }}"
    told = report_json(report(Shop(), spoken((FIRST, FIRST + refusal))))
    assert {each["what"] for each in told["findings"]} == {"the chat template refuses these messages"}
    assert {each["check"] for each in told["findings"]} == {
        "attempts can be played and graded",
        "the prompt opens the assistant's turn",
        "the template writes a stop",
    }


SHOWN = "every message is shown"
LATER = "later prompts show every message"


def test_a_prompt_without_the_users_message_is_found(report, spoken):
    findings = report(Quiz(), spoken((FIRST, "{% for message in messages if message['role'] != 'user' %}")))[
        SHOWN
    ].findings
    assert [each.where for each in findings] == list(PRICES)
    assert findings[0].got == "the prompt does not show the text of message 1 (user)"


@pytest.mark.parametrize("alters", ["[:9]", "| upper", "| replace('a', 'e')"])
def test_a_message_that_is_shown_otherwise_is_found(report, spoken, alters):
    findings = report(Quiz(), spoken((CONTENT, CONTENT.replace(" }}", f" {alters} }}}}"))))[SHOWN].findings
    assert len(findings) == TASKS
    assert "message 1 (user)" in findings[0].got


def test_a_message_that_a_later_prompt_lacks_is_found(report, spoken):
    """As Mistral's system message, which no prompt shows that ends in an answer of a tool."""
    gone = "{{ message['content'] if messages | length < 4 or loop.index != 2 }}"
    told = report(Shop(), spoken((CONTENT, gone)))
    assert told[SHOWN].findings == ()
    assert len(told[LATER].findings) == TASKS
    assert told[LATER].findings[0].got == "the prompt of turn 2 does not show the text of message 1 (user)"


def test_sound_templates_show_every_message(report, spoken):
    told = report(Shop(), spoken())
    assert (told[SHOWN].count, told[SHOWN].findings) == (TASKS, ())
    assert (told[LATER].count, told[LATER].findings) == (TASKS, ())


def test_a_demonstration_that_cannot_be_written_is_found(report, spoken):
    chat = spoken((CONTENT, "{{ message['content'].split('<tool_call>')[0] }}"))
    findings = report(Shop(), chat)["attempts can be played and graded"].findings
    assert findings[0].what == "the chat template does not write all that a demonstrated turn says"
    assert findings[0].got == "it leaves out call 1 (price) of message 2 (assistant)"
